"""Runs that start from trained weights: what they take over, refuse and write down."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

from experiments.export_run import export
from experiments.program import compile_program
from experiments.run import run_experiment
from experiments.run_folder import RunFolder
from experiments.starting_point import find_starting_point
from experiments.trained import open_run, parameters_digest
from models.errors import UserError
from sparsity import export as sparse_files
from sparsity.plan import named_leaves

CALM = ["train.num_evaluations=1", "train.num_checkpoints=1"]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def dense(tiny, workdir):
    """A finished dense run and its folder."""
    experiment = tiny("dense_t5", "12steps", settings=CALM)
    folder = RunFolder(workdir, experiment).path
    if not (folder / "summary.json").exists():
        assert run_experiment(experiment, str(workdir), "here", False) == 0
    return folder


def sparsify(tiny, *settings, name="sparsify_t5_50", **more):
    return tiny(
        name, "12steps", settings=[*CALM, "pruning.update_every_steps=3", *settings], **more
    )


def test_starts_with_the_run_s_parameters_and_a_fresh_optimiser(tiny, dense, workdir):
    experiment = sparsify(tiny)
    start = find_starting_point(experiment, workdir, None)
    program = compile_program(experiment)
    start.check_fits(program)
    state = start.state(program, 3)
    trained, fresh = open_run(dense).params(), program.init_state(3)
    for path, leaf in named_leaves(state["params"]):
        np.testing.assert_array_equal(leaf, trained[path])
    for ours, theirs in zip(
        jax.tree.leaves(state["opt"]), jax.tree.leaves(fresh["opt"]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert int(state["step"]) == 0


def test_facts_and_cost_of_the_start_are_written_down(tiny, dense, workdir):
    experiment = sparsify(tiny)
    assert run_experiment(experiment, str(workdir), "here", False) == 0
    folder = RunFolder(workdir, experiment).path
    summary = json.loads((folder / "summary.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    before = json.loads((dense / "summary.json").read_text())
    assert config["init"] == summary["init"]
    assert summary["init"]["run"] == str(dense)
    assert summary["init"]["digest"] == parameters_digest(open_run(dense).params())
    total = summary["with_init"]
    assert total["steps"] == 24 and total["tokens"] == before["tokens"] + summary["tokens"]
    assert total["rst_s"] == pytest.approx(before["rst_s"] + summary["rst_s"])
    assert total["flops"]["ideal"] < total["flops"]["dense"] == 2 * before["flops"]["dense"]
    assert summary["sparsity"]["off_by"] == 0
    sizes = summary["bytes"]
    assert sizes["bitmask"] < sizes["dense"] == 4 * summary["params"]["total"]


@pytest.mark.parametrize("form", ["compressed", "dense"])
def test_export_reads_back_bit_for_bit(tiny, dense, workdir, tmp_path, form):
    experiment = sparsify(tiny)
    folder = RunFolder(workdir, experiment).path
    if not (folder / "summary.json").exists():
        assert run_experiment(experiment, str(workdir), "here", False) == 0
    ((name, size),) = export(folder, tmp_path, form).items()
    params = open_run(folder).params()
    loaded = dict(named_leaves(sparse_files.load(tmp_path / name)))
    assert loaded.keys() == params.keys()
    for path, leaf in params.items():
        assert leaf.tobytes() == loaded[path].tobytes() and leaf.shape == loaded[path].shape
    # The file has a header beside what the summary counts.
    counted = json.loads((folder / "summary.json").read_text())["bytes"]
    header = 8 + int.from_bytes((tmp_path / name).read_bytes()[:8], "little")
    assert size - header == counted["bitmask" if form == "compressed" else "dense"]


def test_starts_from_weights_as_transformers_saves_them(tiny, dense, workdir, tmp_path):
    export(dense, tmp_path / "weights", "hugging_face")
    settings = ["init.run=none", f"init.hugging_face={tmp_path}/weights"]
    start = find_starting_point(sparsify(tiny, *settings), workdir, None)
    assert start.facts["cost"] is None
    assert parameters_digest(start.params) == parameters_digest(open_run(dense).params())


def refusal(experiment, workdir, recorded=None):
    def start():
        found = find_starting_point(experiment, workdir, recorded)
        found.check_fits(compile_program(experiment))

    with pytest.raises(UserError) as caught:
        start()
    return str(caught.value)


def test_other_shapes_are_refused_by_name(tiny, dense, workdir):
    text = refusal(sparsify(tiny, "model.mlp_dim=64"), workdir)
    assert "mlp/wi_gate has shape (1, 16, 32), this model needs (1, 16, 64)" in text
    assert "activation=relu" in refusal(sparsify(tiny, "model.activation=relu"), workdir)


def test_missing_unfinished_and_ambiguous_runs_are_refused(tiny, dense, workdir, tmp_path):
    text = refusal(sparsify(tiny), tmp_path)
    assert "Make one first: python -m experiments.launch --exp=dense_t5" in text
    assert "no such folder" in refusal(sparsify(tiny, "init.run=/no/such/run"), workdir)

    half = tmp_path / "dense_t5" / dense.name
    half.mkdir(parents=True)
    shutil.copy(dense / "config.json", half)
    assert "is not finished" in refusal(sparsify(tiny, f"init.run={half}"), workdir)

    shutil.rmtree(half)
    shutil.copytree(dense, half)
    other = half.with_name("demo-9steps-s0-00000000")
    shutil.copytree(dense, other)
    assert "2 finished runs that could be meant" in refusal(sparsify(tiny), tmp_path)
    assert find_starting_point(sparsify(tiny, f"init.run={half}"), workdir, None)


def test_damaged_and_changed_weights_are_refused(tiny, dense, workdir, tmp_path):
    start = find_starting_point(sparsify(tiny), workdir, None)
    recorded = start.facts | {"digest": "0"}
    assert "not the weights that this run began from" in refusal(sparsify(tiny), workdir, recorded)
    copy = tmp_path / "copy"
    shutil.copytree(dense, copy)
    largest = max((copy / "checkpoints").rglob("*"), key=lambda p: p.is_file() * p.stat().st_size)
    largest.write_bytes(b"\0" * 100)
    assert "damaged" in refusal(sparsify(tiny, f"init.run={copy}"), workdir)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (["init.run=a", "init.hugging_face=b"], "give one of them"),
        (["init.run=none"], "give a finished run's folder"),
    ],
)
def test_wrong_groups(tiny, settings, part):
    with pytest.raises(UserError, match=f"init.run.*{part}"):
        sparsify(tiny, *settings)


def test_an_experiment_without_the_group_takes_it_from_the_command_line(tiny):
    experiment = tiny("dense_t5", settings=["init.run=somewhere"])
    assert experiment.init.run == "somewhere" and pathlib.Path(experiment.init.run)
