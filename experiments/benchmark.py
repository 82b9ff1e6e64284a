"""`python -m experiments.benchmark`: what the main job costs beside its training, measured here."""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.launch import run_main
from models.errors import UserError

_ONLY = flags.DEFINE_list("only", None, "Parts to measure; all by default.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

Row = tuple[str, str, str, str]  # what, measured, aim, how


def command(exp: str, seed: int, folder: pathlib.Path) -> tuple[float, dict[str, Any]]:
    """Runs the main job as a user does; returns its wall seconds and its summary."""
    begun = time.perf_counter()
    arguments = [f"--exp={exp}", f"--seed={seed}", f"--workdir={folder / 'runs'}"]
    subprocess.run(
        [sys.executable, "-m", "experiments.launch", *arguments],
        check=True,
        env=os.environ | {"KPD_CACHE": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
    )
    wall_s = time.perf_counter() - begun
    found = (folder / "runs" / exp).glob(f"*-s{seed}-*/summary.json")
    return wall_s, json.loads(next(found).read_text())


def measure_commands() -> list[Row]:
    """The main job on a machine that has prepared and compiled nothing, then once more."""
    with tempfile.TemporaryDirectory() as folder:
        first_s, first = command("sparse_t5_75", 0, pathlib.Path(folder))
        second_s, second = command("sparse_t5_75", 1, pathlib.Path(folder))
    final, unigram = first["final"]["nll"], first["validation"]["unigram_nll"]
    gaps = [
        abs(run["step_time_s"]["xprof"] / run["step_time_s"]["wall"] - 1) for run in (first, second)
    ]
    shares = [run["input_wait_share"] for run in (first, second)]
    prepare_s = first["seconds"]["prepare"]
    return [
        ("first run, seed 0", f"{first_s:.0f} s", "≤ 180 s", "nothing prepared or compiled"),
        ("  of it preparing data", f"{prepare_s:.0f} s", "≤ 60 s", "corpus, vocabulary, windows"),
        ("second run, seed 1", f"{second_s:.0f} s", "≤ 120 s", "data, programs and times kept"),
        (
            "  from command to first step",
            f"{second['to_first_step_s']:.1f} s",
            "≤ 20 s",
            "from the start of the process",
        ),
        (
            "validation loss",
            f"{final:.3f}",
            f"< {unigram:.3f}",
            "the bound is the unigram model's, same targets",
        ),
        (
            "  weights off target",
            str(first["sparsity"]["off_by"]),
            "≤ 1",
            "worst layer of any tensor",
        ),
        (
            "XProf against wall step time",
            f"{100 * max(gaps):.1f} %",
            "≤ 5 %",
            "larger of two runs, same window",
        ),
        (
            "input wait",
            f"{100 * max(shares):.2f} %",
            "small",
            "of training time, larger of two runs",
        ),
    ]


def measure_input() -> list[Row]:
    """Masked, batched T5 input at 512/114 from one core."""
    from experiments.data.batches import Batches
    from experiments.data.prepare import prepare
    from experiments.registry import resolve

    demo = resolve("sparse_t5_75", "demo").data
    cfg = dataclasses.replace(demo, inputs_length=512, targets_length=114)
    batches = Batches(prepare(cfg), cfg, "train", 128)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        seconds = []
        for index in range(40):
            begun = time.perf_counter()
            batch = batches.batch(0, index)
            seconds.append(time.perf_counter() - begun)
    finally:
        os.sched_setaffinity(0, cores)
    rate = batch["inputs"].size / statistics.median(seconds)
    return [
        (
            "input, one core",
            f"{rate / 1e6:.1f} M tokens/s",
            "≥ 5 M",
            "encoder tokens of 128 × 512/114, median of 40 batches",
        )
    ]


def measure_pruning() -> list[Row]:
    """What a pruned step costs over a dense one, in interleaved pairs in one process."""
    from experiments.data.batches import Batches
    from experiments.data.prepare import prepare
    from experiments.program import compile_program
    from experiments.registry import resolve
    from experiments.timing import compare_programs

    sparse = resolve("sparse_t5_75", "demo")
    dense = dataclasses.replace(sparse, pruning=None)
    batches = Batches(prepare(sparse.data), sparse.data, "train", sparse.train.batch_size)
    ratio, update = compare_programs(
        dense, compile_program(dense), sparse, compile_program(sparse), batches, pairs=40
    )
    amortised = ratio.median - 1 + update.median / 100
    return [
        (
            "pruned step over dense step",
            f"{100 * (ratio.median - 1):+.1f} %",
            "",
            f"40 pairs, 95 %: {100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f} %",
        ),
        (
            "a mask update",
            f"{update.median:.2f} dense steps",
            "",
            f"40 pairs, 95 %: {update.low:.2f} to {update.high:.2f}",
        ),
        ("pruning, amortised", f"{100 * amortised:+.2f} %", "≤ 2 %", "an update every 100 steps"),
    ]


def measure_clock() -> list[Row]:
    """XProf against a synchronised wall clock, and what a traced window costs."""
    from experiments import benchmark_clock

    return benchmark_clock.measure_clock()


PARTS: dict[str, Callable[[], list[Row]]] = {
    "input": measure_input,
    "pruning": measure_pruning,
    "clock": measure_clock,
    "commands": measure_commands,
}


def main(argv: Sequence[str]) -> int:
    parts = _ONLY.value or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        raise UserError(f"--only {', '.join(unknown)}: not one of {', '.join(PARTS)}.")
    from experiments.device import this_device
    from experiments.program import enable_compilation_cache

    enable_compilation_cache()
    rows = [row for part in parts for row in PARTS[part]()]
    device = this_device()
    table = Table(
        "what", "measured", "aim", "how", title=f"{device.kind}, {device.processors} cores"
    )
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
    if _JSON.value:
        pathlib.Path(_JSON.value).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
