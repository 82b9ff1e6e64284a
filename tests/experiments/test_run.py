"""A whole run, tiny: what it leaves behind, and what it refuses."""

import dataclasses
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

from experiments.checkpoint import Checkpoints
from experiments.program import compile_program
from experiments.run import run_experiment
from experiments.run_folder import RunFolder
from models.errors import UserError
from sparsity.plan import named_leaves
from sparsity.prune import masks_of


def run(experiment, workdir, force=False):
    code = run_experiment(experiment, str(workdir), "here", force)
    return code, RunFolder(pathlib.Path(workdir), experiment).path


def lines_of(folder, split):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["split"] == split]


def last_state(experiment, folder):
    program = compile_program(experiment)
    with Checkpoints(folder / "checkpoints", keep=2) as checkpoints:
        state, meta = checkpoints.restore_latest(program.state_shapes, pytest.fail)
    return state, meta


@pytest.fixture(scope="module")
def finished(tmp_path_factory, request):
    return {}


def test_sparse_run_leaves_what_the_contract_says(tiny, tmp_path):
    experiment = tiny("sparse_t5_75", budget="32steps")
    code, folder = run(experiment, tmp_path)
    assert code == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished" and summary["steps"] == 32
    assert summary["tokens"] == 32 * 4 * 32
    step_s = json.loads((folder / "config.json").read_text())["plan"]["from"]["seconds"]
    assert summary["rst_planned_s"] == pytest.approx(32 * step_s)
    assert summary["rst_s"] >= summary["rst_planned_s"] and summary["account"] == "rst"
    assert summary["step_time_s"]["xprof"] > 0 and summary["step_time_s"]["steps"] == 5
    # Every account of the clock, and nothing else, adds up to the wall time.
    assert sum(summary["seconds"].values()) == pytest.approx(summary["wall_s"])
    assert summary["seconds"]["train"] > 0 and summary["seconds"]["evaluate"] > 0
    assert summary["flops"]["ideal"] < summary["flops"]["dense"]

    # Exactly the planned number of steps, evaluations and lines.
    train, validation = lines_of(folder, "train"), lines_of(folder, "validation")
    assert [line["step"] for line in train] == [5, 10, 15, 20, 25, 30, 32]
    assert [line["step"] for line in validation] == [8, 16, 24, 32]
    assert validation[-1]["progress"] == 1.0
    assert validation[-1]["nll"] == summary["final"]["nll"]
    assert train[-1]["sparsity"] == pytest.approx(summary["sparsity"]["overall"], abs=1e-6)
    assert list(folder.glob("events.out.tfevents.*")) and list(folder.rglob("*.xplane.pb"))

    # Pruned to the last weight, and exactly zero in the checkpoint.
    assert summary["sparsity"]["off_by"] == 0
    state, meta = last_state(experiment, folder)
    assert int(state["step"]) == 32 and meta["progress"] == 1.0
    masks = masks_of(state["opt"])
    zeros = 0
    for path, leaf in named_leaves(state["params"]):
        if path in masks:
            assert not np.any(np.asarray(leaf)[~np.asarray(masks[path])])
            zeros += int((~masks[path]).sum())
            sparsity = 0.5 if path in ("token_embedding", "logits") else 0.75
            size = leaf[0].size if "layers" in path else leaf.size
            layers = leaf.shape[0] if "layers" in path else 1
            assert int((~masks[path]).sum()) == layers * round(sparsity * size)
    assert summary["params"]["total"] - summary["params"]["nonzero"] == zeros

    # A finished run is not overwritten unasked.
    with pytest.raises(UserError, match=r"this run is finished .* --force"):
        run(experiment, tmp_path)
    before = (folder / "summary.json").read_text()
    assert run(experiment, tmp_path, force=True)[0] == 0
    after = json.loads((folder / "summary.json").read_text())
    assert after["final"] == json.loads(before)["final"]


def test_runs_to_be_compared_are_planned_from_one_profile(tiny, tmp_path):
    """Other seeds and other degrees of sparsity get the same steps for the same seconds."""
    steps = set()
    for name, seed in (("sparse_t5_75", 0), ("sparse_t5_75", 1), ("sparse_t5_50", 0)):
        experiment = tiny(name, budget="0.4s", seed=seed)
        _, folder = run(experiment, tmp_path)
        summary = json.loads((folder / "summary.json").read_text())
        steps.add(summary["steps"])
        assert summary["rst_planned_s"] <= 0.4 + 1e-9
    assert len(steps) == 1


def test_loss_that_is_not_finite_stops_the_run(tiny, tmp_path):
    experiment = tiny(
        "dense_t5",
        budget="40steps",
        settings=[
            "optimizer.peak_learning_rate=1e30",
            "optimizer.warmup_fraction=0.5",
            "optimizer.clip_norm=0",
        ],
    )
    with pytest.raises(UserError, match=r"is (nan|inf|-inf) at step \d+: the run is stopped"):
        run(experiment, tmp_path)
    folder = RunFolder(tmp_path, experiment).path
    failure = json.loads((folder / "failure" / "failure.json").read_text())
    batch = np.load(folder / "failure" / "batch.npz")
    assert batch["inputs"].shape == (4, 32)
    assert failure["step"] >= 1
    # No checkpoint holds the broken state.
    for path in (folder / "checkpoints").iterdir():
        assert not path.name.isdigit() or int(path.name) < failure["step"]


def test_folder_of_another_configuration_is_refused(tiny, tmp_path):
    experiment = tiny("dense_t5", budget="4steps")
    folder = RunFolder(tmp_path, experiment).path
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"not a run folder"):
        run(experiment, tmp_path)
    shutil.rmtree(folder)
    run(experiment, tmp_path)
    (folder / "summary.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["model"]["mlp_dim"] = 99
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"another configuration \(model.mlp_dim: 99 there, 32"):
        run(experiment, tmp_path)
    (folder / "config.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        run(experiment, tmp_path)


def test_damaged_checkpoint_is_told_and_the_run_goes_on(tiny, tmp_path, capsys):
    experiment = tiny("sparse_t5_75", budget="12steps")
    _, folder = run(experiment, tmp_path)
    final = json.loads((folder / "summary.json").read_text())["final"]
    (folder / "summary.json").unlink()
    for path in (folder / "checkpoints" / "12").rglob("d/*"):
        path.write_bytes(b"")
    run(experiment, tmp_path)
    told = capsys.readouterr().out
    assert "checkpoint of step 12 is damaged" in told and "Going on after step 9 of 12" in told
    again = json.loads((folder / "summary.json").read_text())
    assert again["final"] == final
    assert [line["step"] for line in lines_of(folder, "validation")] == [3, 6, 9, 12]


def test_training_reduces_the_loss_below_the_unigram_model(tiny, tmp_path):
    experiment = tiny("dense_t5", budget="150steps", settings=["train.batch_size=16"])
    _, folder = run(experiment, tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["final"]["nll"] < summary["validation"]["unigram_nll"]
    losses = [line["loss"] for line in lines_of(folder, "train")]
    assert losses[-1] < losses[0] - 1
    assert dataclasses.asdict(experiment)["seed"] == 0
    assert jax.device_count() >= 1
