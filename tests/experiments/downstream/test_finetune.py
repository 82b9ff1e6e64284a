"""Fine-tuning from end to end, tiny: the same loop and folders as pre-training."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from experiments import registry
from experiments.downstream.registry import TASKS
from experiments.finetune import Request, finetune
from experiments.overrides import apply_overrides
from experiments.run import run_experiment
from experiments.run_folder import RunFolder
from experiments.trained import open_run
from models.errors import UserError
from tests.experiments.downstream import official

SETTINGS = (
    "train.log_every_steps=2",
    "train.profile_steps=4",
    "train.warmup_steps=2",
    "mesh.data=1",
)


TINY_BERT = (
    *("model.vocab_size=612", "model.num_layers=1", "model.num_heads=2", "model.model_dim=16"),
    *("model.mlp_dim=32", "data.vocabulary_size=512", "data.inputs_length=32"),
    *("train.batch_size=4", "train.eval_batches=2"),
)


@pytest.fixture
def pretrained(tiny, corpus, in_cache, tmp_path):
    """(name) → the folder of a finished tiny run."""

    def make(name="crammed_bert"):
        if name == "crammed_bert":
            experiment = dataclasses.replace(registry.resolve(name, "demo"), budget="8steps")
            files = f"data.files={corpus}/*.txt"
            experiment = apply_overrides(experiment, [*TINY_BERT, *SETTINGS, files])
        else:
            experiment = tiny(name, budget="12steps", settings=("pruning.update_every_steps=3",))
        assert run_experiment(experiment, str(tmp_path / "runs"), "here", False) == 0
        return RunFolder(tmp_path / "runs", experiment).path

    return make


@pytest.fixture
def glue(tmp_path, in_cache):
    for name in ("glue/cola", "glue/stsb"):
        official.write(TASKS[name], tmp_path / "glue", 24)
    return f"data.dir={tmp_path / 'glue'}"


def request(folder, task, glue, **more):
    more = {"seeds": 1, "protocol": "demo", **more}
    return Request(run=str(folder), task=task, assignments=(glue, *SETTINGS), **more)


def test_bert_learns_a_task_from_files(pretrained, glue, tmp_path, capsys):
    folder = pretrained()
    assert finetune(request(folder, "glue/cola", glue)) == 0
    scores = json.loads((folder / "downstream" / "glue_cola.json").read_text())
    assert [score["metric"] for score in scores] == ["matthews", "accuracy"]
    assert all(score["seed"] == 0 and -1 <= score["last"] <= score["best"] for score in scores[:1])
    assert {score["epochs"] for score in scores} == {2}
    run = open_run(folder / scores[0]["run"])
    assert run.config["init"]["run"] == str(folder)
    assert run.summary["steps"] == 2 * 24 // 16
    assert "last epoch" in capsys.readouterr().out
    # A second call reads what is there.
    before = (run.folder / "summary.json").stat().st_mtime_ns
    assert finetune(request(folder, "glue/cola", glue)) == 0
    assert (run.folder / "summary.json").stat().st_mtime_ns == before
    # The page of the pre-training run shows the scores.
    assert "glue/cola" in (folder / "report.html").read_text()
    # Other sentences are other data.
    [path] = (tmp_path / "glue").rglob("CoLA/train.tsv")
    path.write_text(path.read_text().replace("sentencew", "otherw"))
    with pytest.raises(UserError, match="made on other data"):
        finetune(request(folder, "glue/cola", glue))


@pytest.mark.slow
def test_score_of_a_regression_over_two_seeds(pretrained, glue):
    folder = pretrained()
    assert finetune(request(folder, "glue/stsb", glue, seeds=2)) == 0
    scores = json.loads((folder / "downstream" / "glue_stsb.json").read_text())
    assert [(one["seed"], one["metric"]) for one in scores] == [
        (seed, metric) for seed in (0, 1) for metric in ("pearson", "spearman")
    ]
    assert open_run(folder / scores[0]["run"]).summary["final"]["squared_error"] >= 0


@pytest.mark.slow
def test_it_starts_from_the_weights_of_the_run(pretrained, glue):
    folder = pretrained()
    frozen = request(folder, "glue/cola", glue, protocol="demo")
    still = (*frozen.assignments, "optimizer.peak_learning_rate=1e-30")
    for scratch in (False, True):
        asked = Request(
            run=frozen.run, task="glue/cola", seeds=1, assignments=still, scratch=scratch
        )
        assert finetune(asked) == 0
    trained = open_run(folder).params()
    for place, same in (("", True), ("scratch", False)):
        scores = json.loads((folder / "downstream" / place / "glue_cola.json").read_text())
        assert scores[0]["from"] == ("crammed_bert" if same else "scratch")
        tuned = open_run(folder / scores[0]["run"]).params()
        assert {path for path in tuned if path not in trained} == {
            "task_head/output",
            "task_head/output_bias",
        }
        table = "token_embedding"
        assert np.array_equal(tuned[table], trained[table]) == same


@pytest.mark.slow
def test_t5_answers_in_words_and_zeros_of_a_sparse_run_stay(pretrained, glue):
    folder = pretrained("sparse_t5_75")
    assert finetune(request(folder, "glue/cola", glue)) == 0
    [first, _] = json.loads((folder / "downstream" / "glue_cola.json").read_text())
    trained = open_run(folder).params()
    tuned = open_run(folder / first["run"])
    after = tuned.params()
    pruned = [path for path, leaf in trained.items() if (leaf == 0).mean() > 0.4]
    assert len(pruned) > 5
    for path in pruned:
        assert np.array_equal(after[path] == 0, trained[path] == 0), path
        assert not np.array_equal(after[path], trained[path])
    assert tuned.summary["sparsity"]["overall"] > 0.5


def test_what_cannot_be_is_said_before_anything_is_trained(pretrained, glue, tmp_path):
    folder = pretrained()
    with pytest.raises(UserError, match="which takes a T5"):
        finetune(request(folder, "glue/cola,sni", glue))
    with pytest.raises(UserError, match=r"no train split: looked for train\.tsv"):
        finetune(request(folder, "glue/rte", f"data.dir={tmp_path}"))
    assert not (folder / "downstream").exists()


@pytest.mark.slow
def test_vit_learns_digits_with_a_new_head(in_cache, tmp_path):
    settings = ["model.num_layers=1", "model.model_dim=16", "model.num_heads=2", "model.mlp_dim=16"]
    experiment = dataclasses.replace(registry.resolve("vit_baseline", "demo"), budget="20steps")
    experiment = apply_overrides(experiment, [*settings, *SETTINGS])
    assert run_experiment(experiment, str(tmp_path), "here", False) == 0
    folder = RunFolder(tmp_path, experiment).path
    assert (
        finetune(
            Request(
                run=str(folder),
                task="digits",
                seeds=1,
                assignments=(*SETTINGS, "train.batch_size=32", "optimizer.peak_learning_rate=1e-2"),
            )
        )
        == 0
    )
    [score] = json.loads((folder / "downstream" / "digits.json").read_text())
    assert score["metric"] == "accuracy" and score["last"] > 0.3


@pytest.mark.slow
def test_weights_of_transformers_with_their_vocabulary(in_cache, tmp_path):
    import string

    from models.api import build
    from models.hugging_face.export import export
    from models.presets import BERT_DEMO

    signs = [*string.ascii_lowercase, *string.digits]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *(f"##{s}" for s in signs)]
    model = dataclasses.replace(
        BERT_DEMO, vocab_size=128, num_layers=1, model_dim=16, num_heads=2, mlp_dim=16
    )
    weights = tmp_path / "weights"
    export(model, build(model).init(jax.random.key(0)), weights)
    official.write(TASKS["glue/rte"], tmp_path / "glue", 24)
    asked = request(weights, "glue/rte", f"data.dir={tmp_path / 'glue'}")
    with pytest.raises(UserError, match=r"has no vocab\.txt"):
        finetune(asked)
    (weights / "vocab.txt").write_text("\n".join(pieces) + "\n")
    assert finetune(asked) == 0
    [score] = json.loads((weights / "downstream" / "glue_rte.json").read_text())
    assert score["from"] == "weights" and score["protocol"] == "demo"
