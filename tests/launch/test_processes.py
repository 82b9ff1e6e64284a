"""Two real processes on the loopback interface: same numbers, kills, disagreements, no answer."""

import json
import signal
import time

import pytest

from experiments.cluster import HEARTBEAT_S
from experiments.distributed import EXIT_LOST
from experiments.run_folder import RunFolder
from tests.launch.processes import finish, free_port, lines_of, start, start_all, wait_for_step

pytestmark = pytest.mark.slow


@pytest.fixture
def command(tiny, tiny_settings, cache, tmp_path):
    """Makes (arguments, run folder) of one tiny run in a working folder of this name."""
    settings = [
        *(s for s in tiny_settings if not s.startswith(("mesh", "train.log_every", "train.batch"))),
        "mesh.data=-1",
        "train.batch_size=8",
        "train.log_every_steps=2",
        "train.num_checkpoints=8",
        "pruning.update_every_steps=7",
        "model.dropout=0.1",
    ]

    def make(name, *more):
        given = {one.partition("=")[0]: one for one in (*settings, *more)}
        experiment = tiny("sparse_t5_75", budget="80steps", settings=list(given.values()))
        arguments = [
            "--exp=sparse_t5_75",
            "--budget=80steps",
            f"--workdir={tmp_path / name}",
            *(f"--set={setting}" for setting in given.values()),
        ]
        return arguments, RunFolder(tmp_path / name, experiment).path

    return make


def curve(folder):
    return {
        (line["split"], line["step"]): line["loss"] for line in lines_of(folder / "metrics.jsonl")
    }


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_two_processes_are_one_and_a_killed_one_stops_the_other(command, cache):
    arguments, alone = command("alone")
    ended = finish([start(arguments, cache)])
    assert ended[0][0] == 0, ended

    arguments, together = command("together")
    ended = finish(start_all(arguments, cache))
    assert [code for code, _ in ended] == [0, 0], ended
    # The second process says nothing and writes nothing.
    assert "validation loss" in ended[0][1] and "validation loss" not in ended[1][1]
    one, two = curve(alone), curve(together)
    assert one.keys() == two.keys() and len(one) > 40
    for at, loss in one.items():
        assert two[at] == pytest.approx(loss, abs=1e-5), at
    assert summary(together)["device"]["count"] == 2

    arguments, killed = command("killed")
    processes = start_all(arguments, cache)
    wait_for_step(killed, 30, processes)
    processes[1].kill()
    begun = time.monotonic()
    (code, output), _ = finish(processes, timeout_s=3 * HEARTBEAT_S)
    assert code in (EXIT_LOST, -signal.SIGABRT), output
    assert time.monotonic() - begun < 2 * HEARTBEAT_S
    assert "died" in output
    assert not (killed / "summary.json").exists()
    ended = finish(start_all(arguments, cache))
    assert [code for code, _ in ended] == [0, 0], ended
    assert "Going on after step" in ended[0][1]
    assert curve(killed) == two
    assert summary(killed)["final"] == summary(together)["final"]


def test_sigterm_to_one_process_saves_on_all(command, cache):
    arguments, told = command("told")
    processes = start_all(arguments, cache)
    wait_for_step(told, 25, processes)
    processes[1].send_signal(signal.SIGTERM)
    ended = finish(processes)
    assert [code for code, _ in ended] == [75, 75], ended
    assert "The same command goes on from there" in ended[0][1]
    # Onto one process with another mesh: parameters in two shards.
    arguments, again = command("told")
    ended = finish(start_all(arguments, cache))
    assert [code for code, _ in ended] == [0, 0], ended
    assert summary(again)["steps"] == 80


@pytest.mark.parametrize(
    ("extra", "parts"),
    [
        (((), ("--set=optimizer.beta1=0.8",)), ["(process 1): ", "optimizer.beta1 is 0.8 there"]),
        (((), ("--seed=3",)), ["seed is 3 there, 0 on process 0"]),
    ],
)
def test_hosts_that_disagree_are_named(command, cache, extra, parts):
    arguments, _ = command("disagree")
    for code, output in finish(start_all(arguments, cache, extra=extra)):
        assert code == 2 and "Traceback" not in output, output
        assert "disagree with" in output
        for part in parts:
            assert part in output


def test_a_coordinator_that_does_not_answer_is_named(command, cache):
    arguments, _ = command("nobody")
    address = f"127.0.0.1:{free_port()}"
    flags = [f"--coordinator={address}", "--num_processes=2", "--join_timeout_s=3"]
    begun = time.monotonic()
    ended = finish([start([*arguments, *flags, "--process_id=1"], cache)])
    assert ended[0][0] == 2 and address in ended[0][1] and "Traceback" not in ended[0][1]
    assert "cannot be reached within 3 s" in ended[0][1]
    # Process 0 has said where it waits before JAX ends it.
    ended = finish([start([*arguments, *flags, "--process_id=0"], cache)])
    assert time.monotonic() - begun < 60
    assert ended[0][0] != 0 and address in ended[0][1], ended
