"""Studies: which points are run, what settings do to them, what a failed point leaves."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments import registry, run_study
from experiments.against_scratch import against_scratch
from experiments.run_folder import RunFolder
from experiments.study import Study, adjust, parse_points
from models.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]
MODULE = '''
import dataclasses
from experiments.registry import resolve, study
from experiments.study import Study

@study
def study_seeds(scale):
    """Two sparse runs and a dense one."""
    sparse = dataclasses.replace(resolve("sparse_t5_75", scale), name="study_seeds/sparse")
    return Study(
        name="study_seeds",
        runs=(sparse, dataclasses.replace(sparse, seed=1), resolve("dense_t5", scale)),
    )
'''


@pytest.fixture
def study():
    sparse, dense = registry.resolve("sparse_t5_75", "demo"), registry.resolve("dense_t5", "demo")
    return Study(name="study_x", runs=(sparse, dataclasses.replace(sparse, seed=1), dense))


@pytest.mark.parametrize(
    ("text", "points"),
    [("1", [1]), ("1,4-7", [1, 4, 5, 6, 7]), ("7,2-3, 3", [2, 3, 7]), ("1-7", list(range(1, 8)))],
)
def test_points(text, points):
    assert parse_points(text, 7) == points


@pytest.mark.parametrize("text", ["0", "8", "3-2", "1,", "x", "", "2-9", "1;2"])
def test_wrong_points(text):
    with pytest.raises(UserError, match="--points="):
        parse_points(text, 7)


def test_settings_reach_the_runs_that_have_them(study):
    changed = adjust(
        study,
        seed=None,
        budget="7steps",
        assignments=["pruning.sparsity=0.5", "train.batch_size=8"],
    )
    assert [run.budget for run in changed.runs] == ["7steps"] * 3
    assert [run.seed for run in changed.runs] == [0, 1, 0]
    assert [run.train.batch_size for run in changed.runs] == [8] * 3
    assert [run.pruning and run.pruning.sparsity for run in changed.runs] == [0.5, 0.5, None]


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"assignments": ["train.batchsize=8"]}, "Did you mean train.batch_size"),
        ({"assignments": ["train.batch_size=x"]}, "not a whole number"),
        ({"assignments": ["train.batch_size=0"]}, "at least 1"),
        ({"seed": 1}, "points 1 and 2 are the same run"),
    ],
)
def test_settings_that_do_not_fit(study, settings, part):
    with pytest.raises(UserError, match=part):
        adjust(study, **({"seed": None, "budget": None, "assignments": []} | settings))


def test_finished_points_are_skipped_and_a_failed_one_stops_no_other(study, tmp_path, capsys):
    made = []

    def run(experiment, workdir, *_, **__):
        made.append((experiment.name, experiment.seed))
        if experiment.seed == 1:
            raise UserError("no room on the disk.")
        folder = RunFolder(pathlib.Path(workdir), experiment)
        folder.path.mkdir(parents=True)
        folder.write_summary({"status": "finished", "steps": 3, "final": {"nll": 4.5}})
        return 0

    where = (str(tmp_path), "here")
    assert run_study.run_study(study, [1, 2], *where, False, run=run) == run_study.EXIT_FAILED
    assert made == [("sparse_t5_75", 0), ("sparse_t5_75", 1)]
    assert "point 2 failed: no room on the disk." in capsys.readouterr().out
    assert run_study.run_study(study, [1, 2, 3], *where, False, run=run) == 2
    assert made[2:] == [("sparse_t5_75", 1), ("dense_t5", 0)]
    out = capsys.readouterr().out
    assert "done already" in out and "4.5000" in out


def test_a_signal_stops_the_study(study, tmp_path):
    code = run_study.run_study(study, [1, 2], str(tmp_path), "here", False, run=lambda *_, **__: 75)
    assert code == 75 and not list(tmp_path.rglob("summary.json"))


def launch(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "experiments.launch", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )


def test_study_of_a_users_module(tmp_path):
    (tmp_path / "my_studies.py").write_text(MODULE)
    mine = "--import=my_studies"
    listed = launch(tmp_path, mine, "--list")
    assert "study_seeds" in listed.stdout and "Two sparse runs" in listed.stdout
    shown = launch(tmp_path, mine, "--exp=study_seeds", "--dry_run", "--budget=9steps")
    lines = shown.stdout.splitlines()
    assert len(lines) == 3 and "study_seeds/sparse" in lines[0] and "9steps" in lines[2]
    one = launch(tmp_path, mine, "--exp=study_seeds", "--points=2", "--dry_run")
    assert json.loads(one.stdout)["seed"] == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--import=my_missing", "--list"], "no module my_missing"),
        (["--import=needs_more", "--list"], "it imports no_such_package, which is not installed"),
        (["--import=my_studies", "--exp=study_seeds", "--points=4"], "4 is not within 1 to 3"),
        (["--exp=dense_t5", "--points=1"], "dense_t5 is one run"),
    ],
)
def test_wrong_modules_and_points(tmp_path, arguments, part):
    (tmp_path / "my_studies.py").write_text(MODULE)
    (tmp_path / "needs_more.py").write_text("import no_such_package\n")
    done = launch(tmp_path, *arguments)
    assert done.returncode == 2 and part in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("scale", registry.SCALES)
@pytest.mark.parametrize("name", registry.all_studies())
def test_every_study_resolves_and_says_how_to_run_it(name, scale):
    study = registry.resolve_study(name, scale)
    assert study.name == name
    adjust(study, seed=None, budget=None, assignments=[])
    text = registry.all_studies()[name].__doc__
    assert f"Command: python -m experiments.launch --exp={name}" in text and "Time:" in text


@pytest.mark.parametrize("scale", registry.SCALES)
@pytest.mark.parametrize("name", ["study_sparse_t5", "study_sparse_vit"])
def test_non_zero_weights_are_matched_across_sparsities(name, scale):
    sizes = {}
    for run in registry.resolve_study(name, scale).runs:
        sparsity = run.pruning.sparsity if run.pruning else 0.0
        size = run.name.split("size-")[1].split("-")[0]
        sizes.setdefault(size, set()).add((1 - sparsity) * layer_weights(run.model))
    assert len(sizes) >= 3
    for found in sizes.values():
        assert max(found) / min(found) < (1.07 if scale == "demo" else 1.02)


def layer_weights(model):
    """Weights of the layers' matrices, from a table of shapes."""
    d, m = model.model_dim, model.mlp_dim
    if hasattr(model, "num_layers"):
        return model.num_layers * (4 * d * d + 2 * d * m)
    inner = model.num_heads * model.head_dim
    encoder, decoder = model.num_encoder_layers, model.num_decoder_layers
    return (encoder + 2 * decoder) * 4 * d * inner + (encoder + decoder) * 3 * d * m


def test_pruned_and_from_scratch_are_compared_at_equal_cost():
    runs = registry.resolve_study("study_sparsify_t5", "demo").runs[:4]

    def summary(tokens, loss, before=0):
        def cost(steps):
            return {"tokens": steps, "rst_s": steps / 10, "flops": {"dense": 2e9, "ideal": 1e9}}

        found = cost(tokens) | {"status": "finished", "final": {"nll": loss}}
        return found | {"with_init": cost(tokens + before)} if before else found

    made = [summary(300, 5.0), summary(150, 4.5, 300), summary(150, 4.75), summary(450, 4.25)]
    table = against_scratch(list(zip(runs, made, strict=True)))
    losses, scratch = ([*table.columns[index].cells] for index in (2, 3))
    assert losses == ["4.5000"] * 2 and scratch == ["4.7500", "4.2500"]
    assert [*table.columns[4].cells] == ["-0.2500", "+0.2500"]
    assert [*table.columns[5].cells] == ["15.0 : 15.0", "45.0 : 45.0"]
    assert against_scratch(list(zip(runs[2:], made[2:], strict=True))) is None
