"""What is fine-tuned: configurations read back from runs, and what is refused."""

import dataclasses
import json

import pytest

from experiments import registry
from experiments.config import Experiment, to_json
from experiments.downstream import plan
from experiments.downstream.protocols import find_protocol
from experiments.downstream.source import check_no_leak, decode, open_source
from models.errors import UserError
from models.presets import VIT_DEMO


def write_run(folder, name="crammed_bert", status="finished", **changes):
    """A run folder as far as its configuration goes, with a vocabulary of the user's."""
    experiment = registry.resolve(name, "demo")
    if hasattr(experiment.data, "vocabulary_file"):
        data = dataclasses.replace(experiment.data, vocabulary_file="/some/v.model", **changes)
        experiment = dataclasses.replace(experiment, data=data)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"experiment": to_json(experiment)}))
    (folder / "summary.json").write_text(json.dumps({"status": status}))
    return experiment


@pytest.mark.parametrize("name", ["crammed_bert", "sparse_t5_75", "dense_t5", "bert_baseline"])
def test_configurations_come_back_as_they_were(name):
    experiment = registry.resolve(name, "demo")
    stored = json.loads(json.dumps(to_json(experiment)))
    for field in ("model", "data", "pruning", "optimizer", "train"):
        annotation = Experiment.__dataclass_fields__[field].type
        assert decode(annotation, stored[field]) == getattr(experiment, field)


def test_run_is_read(tmp_path):
    experiment = write_run(tmp_path / "run")
    source = open_source(str(tmp_path / "run"))
    assert source.model == experiment.model and source.name == "crammed_bert"
    assert source.vocabulary_file == "/some/v.model"
    assert source.init.run == str(tmp_path / "run")


def test_zeros_of_a_sparse_run_stay(tmp_path):
    write_run(tmp_path / "run", "sparse_t5_75")
    pruning = open_source(str(tmp_path / "run")).pruning
    assert (pruning.rule, pruning.sparsity) == ("static", 0.75)
    pruning.check()


def test_what_is_no_finished_run_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no config.json there"):
        open_source(str(tmp_path))
    write_run(tmp_path / "run", status="diverged")
    with pytest.raises(UserError, match="this run is diverged"):
        open_source(str(tmp_path / "run"))
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(UserError, match="is not finished"):
        open_source(str(tmp_path / "run"))


def test_task_that_the_model_cannot_do(tmp_path):
    write_run(tmp_path / "run")
    source, protocol = open_source(str(tmp_path / "run")), find_protocol("demo")
    with pytest.raises(UserError, match="answered in free text, which takes a T5"):
        plan.draft(source, "sni", protocol, scratch=False)
    with pytest.raises(UserError, match="crammed_bert is a BERT, which cannot do it; a ViT can"):
        plan.draft(source, "digits", protocol, scratch=False)
    vit = dataclasses.replace(source, model=VIT_DEMO)
    with pytest.raises(UserError, match="is a ViT, which cannot do it; BERT and T5 can"):
        plan.draft(vit, "glue/rte", protocol, scratch=False)


def test_draft_follows_the_protocol(tmp_path):
    write_run(tmp_path / "run")
    source = open_source(str(tmp_path / "run"))
    drafted = plan.draft(source, "superglue/cb", find_protocol("ntng"), scratch=False)
    assert drafted.train.num_evaluations == 10 and drafted.model.dropout == 0.1
    assert drafted.optimizer.peak_learning_rate == 5e-5 and drafted.optimizer.clip_norm == 0
    assert (drafted.head.num_outputs, drafted.head.hidden_dim) == (3, 1024)
    assert plan.draft(source, "glue/stsb", find_protocol("ntng"), scratch=True).init is None


def test_text_that_the_run_has_read_is_not_asked_about(tmp_path):
    write_run(tmp_path / "run", validation_fraction=0.01)
    source = open_source(str(tmp_path / "run"))
    check_no_leak(source, ["glue/rte"])
    with pytest.raises(UserError, match=r"it has read what the embedded suite asks about"):
        check_no_leak(source, ["glue/rte", "embedded/kind"])
