"""The command line: what it lists, shows, refuses, and how it says so."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def launch(*arguments, command="experiments.launch", **environment):
    return subprocess.run(
        [sys.executable, "-m", command, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--exp=sparse_t5_57"], ["no such experiment", "Did you mean sparse_t5_75?", "--list"]),
        ([], ["--exp=NAME is missing"]),
        (["--exp=dense_t5", "extra"], ["extra: not a flag"]),
        (["--exp=dense_t5", "--bugdet=3s"], ["bugdet"]),
        (["--exp=dense_t5", "--scale=huge"], ["scale", "demo|paper"]),
        (["--exp=dense_t5", "--seed=x"], ["seed"]),
        (["--exp=dense_t5", "--seed=-1"], ["seed=-1", "at least 0"]),
        (["--exp=dense_t5", "--budget=90"], ["the unit is missing; write 90s"]),
        (["--exp=dense_t5", "--set=train.batchsize=3"], ["Did you mean train.batch_size?"]),
        (["--exp=dense_t5", "--set=train.batch_size=x"], ["'x' is not a whole number"]),
        (["--exp=dense_t5", "--set=train.batch_size=0"], ["train.batch_size=0", "at least 1"]),
        (["--exp=dense_t5", "--set=optimizer.name=adam"], ["Did you mean adamw?"]),
        (["--exp=dense_t5", "--set=pruning.sparsity=0.5"], ["pruning is None in dense_t5"]),
        (["--exp=sparse_t5_75", "--set=pruning.sparsity=1.5"], ["pruning.sparsity=1.5"]),
        (["--exp=sparse_t5_75", "--set=model.dropout=2"], ["model.dropout=2"]),
        (["--exp=sparse_t5_75", "--set=data.mask_rate=2"], ["data.mask_rate=2"]),
        (["--exp=dense_t5", "--set=seed=3"], ["use --seed=3"]),
        (
            ["--exp=dense_t5", "--set=train.batch_size=4", "--set=train.batch_size=8"],
            ["train.batch_size is set twice"],
        ),
        (["--exp=dense_t5", "--set=model.vocab_size=300"], ["model.vocab_size=300", "4196"]),
        (["--exp=dense_t5", "--set=train.microbatches=7"], ["does not divide"]),
        (["--exp=dense_t5", "--set=mesh.data=-4"], ["mesh.data=-4: must be"]),
        (["--exp=dense_t5", "--workdir="], ["--workdir is empty"]),
        (["--exp=dense_t5", "--import=my/claim.py"], ["Write my.claim."]),
    ],
)
def test_bad_input_is_one_or_two_lines_and_exit_code_2(arguments, parts):
    done = launch(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and not done.stdout
    assert 1 <= len(done.stderr.strip().splitlines()) <= 2
    for part in parts:
        assert part in done.stderr


def test_unknown_reference_and_unwritable_workdir(tmp_path):
    done = launch("--exp=dense_t5", "--reference=moon", f"--workdir={tmp_path}")
    assert done.returncode == 2 and "no such reference" in done.stderr
    (tmp_path / "file").write_text("")
    done = launch("--exp=dense_t5", f"--workdir={tmp_path}/file")
    assert done.returncode == 2 and "cannot write there" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_shows_every_experiment():
    done = launch("--list")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.splitlines()]
    assert {"dense_t5", "sparse_t5_50", "sparse_t5_75", "sparse_t5_875"} <= set(names)


def test_dry_run_shows_the_operative_configuration(tmp_path):
    done = launch(
        "--exp=sparse_t5_75", "--dry_run", "--seed=7", "--set=train.batch_size=6", cwd=str(tmp_path)
    )
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert shown["seed"] == 7 and shown["train"]["batch_size"] == 6
    assert shown["pruning"]["sparsity"] == 0.75


@pytest.mark.parametrize(
    ("command", "own", "shared", "foreign"),
    [
        ("experiments.launch", ["--budget", "--scale=demo|paper", "--[no]list"], [], []),
        ("experiments.compare", ["--margin", "[5%]"], [], ["--budget", "--list"]),
        ("experiments.prepare", [], ["--exp", "--set"], ["--workdir"]),
        ("experiments.calibrate", ["--save"], ["--reference"], ["--exp"]),
        ("launch.slurm", ["--nodes"], ["--exp", "--workdir"], ["--coordinator"]),
    ],
)
def test_help_shows_the_flags_that_the_command_reads(command, own, shared, foreign):
    shown = launch("--help", command=command)
    assert shown.returncode == 0
    first, _, rest = shown.stdout.partition("\n")
    assert f"python -m {command}" in first
    before, _, after = rest.partition("As in python -m experiments.launch:")
    assert all(flag in before for flag in own)
    assert all(flag in after or flag in before for flag in shared)
    assert not any(f"  {flag} " in rest for flag in foreign)


def test_a_flag_that_a_command_does_not_read_is_an_error():
    done = launch("runs", "--budget=60s", command="experiments.compare")
    assert done.returncode == 2
    assert done.stderr.startswith("--budget: not a flag of this command")
