"""How far the clock can be trusted: XProf against wall time, and what a traced window costs."""

import dataclasses
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.budget import parse_budget
from experiments.config import Experiment
from experiments.data.batches import Batches
from experiments.data.prepare import prepare
from experiments.program import compile_program
from experiments.registry import resolve
from experiments.window import StepTime, Window

# A step of at least this many seconds is what the aim is for.
_STEP_S = 0.1


class Pair(NamedTuple):
    """One traced window, and as many steps without a trace next to it."""

    timed: StepTime
    # Seconds of one step in a loop that nothing traces.
    untraced_s: float
    # Seconds for starting and ending the trace and for reading it.
    around_s: float


def traced_pairs(run: Callable[[Any, int], Any], state: Any, steps: int, pairs: int) -> list[Pair]:
    """Runs traced and untraced windows of `steps` steps in turn."""
    found = []
    for index in range(2):
        state = run(state, index)
    jax.block_until_ready(state)
    for _ in range(pairs):
        begun = time.perf_counter()
        for index in range(steps):
            state = run(state, index)
        jax.block_until_ready(state)
        untraced_s = (time.perf_counter() - begun) / steps
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="kpd-trace-") as folder:
            with Window(pathlib.Path(folder), steps) as window:
                window.start()
                for index in range(steps):
                    state = run(state, index)
                jax.block_until_ready(state)
                timed = window.stop()
            around_s = time.perf_counter() - begun - steps * timed.wall
        found.append(Pair(timed, untraced_s, around_s))
    return found


def measure_clock(pairs: int = 8) -> list[tuple[str, str, str, str]]:
    """Rows of the benchmark: what, measured, aim, how."""
    demo = resolve("bert_baseline", "demo")
    steps = demo.train.profile_steps
    run, state = _long_enough(demo)
    found = traced_pairs(run, state, steps, pairs)
    gaps = [pair.timed.disagreement for pair in found if pair.timed.disagreement is not None]
    step_s = statistics.median(pair.untraced_s for pair in found)
    slower = statistics.median(pair.timed.wall / pair.untraced_s - 1 for pair in found)
    around_s = statistics.median(pair.around_s for pair in found)
    run_s = parse_budget(demo.budget).amount
    cost_s = around_s + max(slower, 0.0) * step_s * steps
    where = f"{pairs} windows of {steps} steps of {1e3 * step_s:.0f} ms"
    return [
        (
            "XProf against synchronised wall clock",
            f"{100 * statistics.median(map(abs, gaps)):.2f} %",
            "≤ 3 %",
            f"median of {where}, the largest {100 * max(map(abs, gaps)):.2f} %",
        ),
        (
            "a step under the profiler",
            f"{100 * slower:+.1f} %",
            "",
            f"against untraced windows in turn, median of {pairs} pairs",
        ),
        (
            "a profiled window",
            f"{100 * cost_s / run_s:.1f} %",
            "≤ 2 %",
            f"of a demo run's {run_s:.0f} s: {around_s:.2f} s around it and the slower steps",
        ),
    ]


def _long_enough(demo: Experiment) -> tuple[Callable[[Any, int], Any], Any]:
    """A step of the experiment, with its batch doubled until it takes long enough, and a state."""
    batch_size = demo.train.batch_size
    while True:
        train = dataclasses.replace(demo.train, batch_size=batch_size)
        run, state = _step_of(dataclasses.replace(demo, train=train))
        state = jax.block_until_ready(run(run(state, 0), 1))
        begun = time.perf_counter()
        state = jax.block_until_ready(run(state, 2))
        if time.perf_counter() - begun >= _STEP_S:
            return run, state
        batch_size *= 2


def _step_of(experiment: Experiment) -> tuple[Callable[[Any, int], Any], Any]:
    batches = Batches(
        prepare(experiment.data), experiment.data, "train", experiment.train.batch_size
    )
    drawn = [batches.batch(0, index) for index in range(4)]
    program = compile_program(experiment)

    def run(state: Any, index: int) -> Any:
        batch: Any = drawn[index % len(drawn)]
        return program.train_step(state, batch, np.float32(0), np.float32(0))[0]

    return run, program.init_state(0)
