"""`python -m launch.benchmark`: two processes against one on the same cores, and how jobs start.

Trains one experiment, in turns, as one process on all cores and as two processes on loopback that
have half of the cores and half of every batch each; with --ways=two,slurm also as a Slurm job of
one task, submitted by `launch.slurm`. Medians of rounds; one before them fills all caches.
"""

import dataclasses
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.launch import run_main
from models.errors import UserError

_EXP = flags.DEFINE_string("trained", "dense_t5", "Experiment that is trained.")
_STEPS = flags.DEFINE_integer("steps", 80, "Steps of each run.", lower_bound=40)
_ROUNDS = flags.DEFINE_integer("rounds", 4, "Runs of each kind that count.", lower_bound=1)
_SETTINGS = flags.DEFINE_multi_string("with", [], "path=value, as --set of experiments.launch.")
_WAYS = flags.DEFINE_list("ways", ["two"], "What is compared with one process: two, slurm.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

# A run is timed by its steps alone.
_QUICK = (
    "train.log_every_steps=5",
    "train.num_evaluations=1",
    "train.eval_batches=1",
    "train.num_checkpoints=1",
)
# Seconds after which a run is given up.
_TIMEOUT_S = 300

# (flags of the run, cores, log) → the processes of the run; a scheduler's own are not among them.
Way = Callable[[Sequence[str], Sequence[int], IO[str]], list[subprocess.Popen[str]]]


@dataclasses.dataclass(frozen=True)
class Taken:
    """What one run took: seconds of a step, and from the command to the first lines of metrics."""

    step_s: float
    to_first_steps_s: float


def one_process(
    arguments: Sequence[str], cores: Sequence[int], log: IO[str]
) -> list[subprocess.Popen[str]]:
    return [_start("experiments.launch", arguments, cores, log)]


def two_processes(
    arguments: Sequence[str], cores: Sequence[int], log: IO[str]
) -> list[subprocess.Popen[str]]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    half = len(cores) // 2
    return [
        _start(
            "experiments.launch",
            [*arguments, f"--coordinator={address}", "--num_processes=2", f"--process_id={index}"],
            part,
            log,
        )
        for index, part in enumerate((cores[:half], cores[half : 2 * half]))
    ]


def slurm_job(
    arguments: Sequence[str], cores: Sequence[int], log: IO[str]
) -> list[subprocess.Popen[str]]:
    return [
        _start("launch.slurm", [*arguments, f"--python={sys.executable}", "--time=10"], cores, log)
    ]


WAYS: dict[str, Way] = {"one": one_process, "two": two_processes, "slurm": slurm_job}
_NAMES = {"one": "one process", "two": "two processes", "slurm": "Slurm job of one"}


def _start(
    module: str, arguments: Sequence[str], cores: Sequence[int], log: IO[str]
) -> subprocess.Popen[str]:
    """Starts a command on these cores alone."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
    finally:
        os.sched_setaffinity(0, own)


def measure(way: str, seed: int, workdir: pathlib.Path, cores: Sequence[int]) -> Taken:
    """Trains one run with this seed; raises UserError where it fails."""
    arguments = [
        f"--exp={_EXP.value}",
        f"--seed={seed}",
        f"--budget={_STEPS.value}steps",
        f"--workdir={workdir}",
        *(f"--set={setting}" for setting in (*_QUICK, *_SETTINGS.value)),
    ]
    workdir.mkdir(parents=True, exist_ok=True)
    log = workdir / f"{seed}.log"
    with open(log, "w") as written:
        begun = time.perf_counter()
        processes = WAYS[way](arguments, cores, written)
        try:
            _wait_for(workdir, f"*-s{seed}-*/metrics.jsonl", processes, log)
            to_first_steps_s = time.perf_counter() - begun
            summary = _wait_for(workdir, f"*-s{seed}-*/summary.json", processes, log)
            for process in processes:
                process.wait(_TIMEOUT_S)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return Taken(json.loads(summary.read_text())["step_time_s"]["wall"], to_first_steps_s)


def _wait_for(
    workdir: pathlib.Path,
    pattern: str,
    processes: Sequence[subprocess.Popen[str]],
    log: pathlib.Path,
) -> pathlib.Path:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and not any(process.poll() for process in processes):
        if found := next(workdir.glob(f"{_EXP.value}/{pattern}"), None):
            return found
        time.sleep(0.02)
    said = [line for line in log.read_text().splitlines() if line.strip()][-2:]
    raise UserError(f"{log}: no {pattern}: {' '.join(said) or 'the run said nothing'}")


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag.")
    if unknown := set(_WAYS.value) - set(WAYS):
        raise UserError(f"--ways {', '.join(unknown)}: known are {', '.join(WAYS)}.")
    ways = [way for way in WAYS if way in ("one", *_WAYS.value)]
    cores = sorted(os.sched_getaffinity(0))
    if "two" in ways and len(cores) < 2:
        raise UserError("two processes need two cores at least; this one may use a single core.")
    taken: dict[str, list[Taken]] = {way: [] for way in ways}
    console = Console(width=100, highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(_ROUNDS.value + 1):
            for way in ways:
                run = measure(way, seed, pathlib.Path(folder) / way, cores)
                console.print(
                    f"{_NAMES[way]}, {'round ' + str(seed) if seed else 'caches'}: "
                    f"{1e3 * run.step_s:.1f} ms a step, first steps after "
                    f"{run.to_first_steps_s:.1f} s"
                )
                if seed > 0:
                    taken[way].append(run)
    console.print(table_of(taken, len(cores)))
    if _JSON.value:
        rows = {way: [dataclasses.asdict(run) for run in runs] for way, runs in taken.items()}
        pathlib.Path(_JSON.value).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def table_of(taken: dict[str, list[Taken]], cores: int) -> Table:
    """Medians, and medians of what each round compares with its run as one process."""
    alone = taken["one"]
    table = Table(title=f"{_EXP.value}, {_STEPS.value} steps, {cores} cores, {len(alone)} rounds")
    for column in ("", "step", "times one process's", "to the first steps", "added"):
        table.add_column(column, justify="right" if column else "left")
    for way, runs in taken.items():
        ratios = [run.step_s / one.step_s for run, one in zip(runs, alone, strict=True)]
        added = [
            run.to_first_steps_s - one.to_first_steps_s
            for run, one in zip(runs, alone, strict=True)
        ]
        table.add_row(
            _NAMES[way],
            f"{1e3 * statistics.median(run.step_s for run in runs):.1f} ms",
            f"{statistics.median(ratios):.3f}",
            f"{statistics.median(run.to_first_steps_s for run in runs):.1f} s",
            f"{statistics.median(added):+.1f} s",
        )
    return table


if __name__ == "__main__":
    run_main(main)
