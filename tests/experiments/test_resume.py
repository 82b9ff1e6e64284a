"""Kills: a run that was stopped anywhere ends bit for bit where an undisturbed one does."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from experiments.checkpoint import Checkpoints
from experiments.program import compile_program
from experiments.run_folder import RunFolder
from sparsity.plan import named_leaves

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow


class Command:
    """The launch command of one tiny experiment, in processes of its own."""

    def __init__(self, experiment, settings, cache, workdir):
        self.experiment = experiment
        self.folder = RunFolder(workdir, experiment).path
        self._arguments = [
            f"--exp={experiment.name}",
            f"--budget={experiment.budget}",
            f"--workdir={workdir}",
            *(f"--set={setting}" for setting in settings),
        ]
        self._environment = os.environ | {"KPD_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}

    def start(self):
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.launch", *self._arguments],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self):
        process = self.start()
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def stop_at(self, step, number):
        """Sends a signal once a line of metrics says that this step is reached."""
        process = self.start()
        metrics = self.folder / "metrics.jsonl"
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None:
            if metrics.exists() and any(
                json.loads(line)["step"] >= step
                for line in metrics.read_text().splitlines()
                if line.endswith("}")
            ):
                process.send_signal(number)
                break
            time.sleep(0.002)
        output, _ = process.communicate(timeout=100)
        return process.returncode, output

    def final_state(self):
        program = compile_program(self.experiment)
        with Checkpoints(self.folder / "checkpoints", keep=2) as checkpoints:
            state, meta = checkpoints.restore_latest(program.state_shapes, pytest.fail)
        return dict(named_leaves(state)), meta

    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())


@pytest.fixture
def commands(tiny, tiny_settings, cache, tmp_path):
    """Makes launch commands of the same experiment in different working folders."""
    settings = [
        *(s for s in tiny_settings if not s.startswith(("train.log_every", "train.batch_size"))),
        "train.log_every_steps=2",
        "train.batch_size=8",
        "train.num_checkpoints=20",
        "pruning.update_every_steps=7",
        "model.dropout=0.1",
    ]
    experiment = tiny("sparse_t5_75", budget="400steps", settings=settings)
    return lambda name: Command(experiment, settings, cache, tmp_path / name)


def assert_same_end(left, right):
    (state, meta), (expected, expected_meta) = left.final_state(), right.final_state()
    assert set(state) == set(expected)
    for name, leaf in state.items():
        one, other = (np.asarray(x) for x in (as_data(leaf), as_data(expected[name])))
        np.testing.assert_array_equal(one, other, err_msg=name)
    assert meta["rst_s"] > 0 and meta["progress"] == expected_meta["progress"] == 1.0
    assert left.summary()["final"] == right.summary()["final"]
    assert left.summary()["steps"] == right.summary()["steps"] == 400


def as_data(leaf):
    import jax
    import jax.numpy as jnp

    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def test_killed_runs_end_bit_for_bit_where_an_undisturbed_one_does(commands):
    undisturbed = commands("undisturbed")
    code, output = undisturbed.run()
    assert code == 0, output

    killed = commands("killed")
    for step in (90, 230):
        code, output = killed.stop_at(step, signal.SIGKILL)
        assert code == -signal.SIGKILL, output
        assert not (killed.folder / "summary.json").exists()
    code, output = killed.run()
    assert code == 0, output
    assert "Going on after step" in output
    assert_same_end(killed, undisturbed)
    # Each step is logged once, in order, although some were run twice.
    lines = (killed.folder / "metrics.jsonl").read_text().splitlines()
    steps = [line["step"] for line in map(json.loads, lines) if line["split"] == "train"]
    assert steps == list(range(2, 401, 2))

    told = commands("told")
    code, output = told.stop_at(150, signal.SIGTERM)
    assert code == 75, output
    assert "The same command goes on from there" in output and "Traceback" not in output
    code, output = told.run()
    assert code == 0, output
    assert_same_end(told, undisturbed)
