"""The command line: what it lists, shows, refuses, and how it says so."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def launch(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "experiments.launch", *arguments],
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


def test_help_says_what_the_command_does():
    shown = launch("--help")
    assert shown.returncode == 0
    assert "python -m experiments.launch --exp=NAME" in shown.stdout
    assert "--budget" in shown.stdout
