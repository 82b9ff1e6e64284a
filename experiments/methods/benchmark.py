"""`python -m experiments.methods.benchmark`: are the methods charged what they take, measured here?

Two ratios for every method. Charged over measured: the seconds that a plan charges for a step, over
those that a step takes, both as multiples of the plain program in the same process, so that a
machine that slows down meanwhile does not matter. Loop overhead: what a step takes longer in the
training loop than in a bare chain of the same programs, as a share of a step of 50 ms.
"""

import dataclasses
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags
from rich.console import Console
from rich.table import Table

from experiments import registry
from experiments.budget import Plan
from experiments.config import Experiment
from experiments.data.batches import Batches
from experiments.data.prepare import prepare
from experiments.device import this_device
from experiments.launch import run_main
from experiments.methods.api import Before
from experiments.ntng import BASELINES, CHALLENGERS
from experiments.planning import plan_run
from experiments.program import Program, enable_compilation_cache, examples_per_step
from experiments.program_time import ProgramTimes, compare_calls, fill_batch
from experiments.reference import find_reference
from experiments.stages import Stages
from models.errors import UserError

_FAMILY = flags.DEFINE_enum("family", "bert", tuple(BASELINES), "Which model.")
_ONLY = flags.DEFINE_list("only", None, "Methods to measure; all by default.")
_ROUNDS = flags.DEFINE_integer("rounds", 15, "Interleaved blocks that each figure is taken from.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

# The step that the loop's overhead is a share of.
_STEP_S = 0.050


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one method is charged and takes, per step, in steps of the plain program."""

    method: str
    charged: float
    takes: float
    # Seconds that the loop adds to a step.
    loop_s: float

    @property
    def ratio(self) -> float:
        return self.charged / self.takes

    @property
    def overhead(self) -> float:
        """Share of a step of 50 ms."""
        return self.loop_s / _STEP_S


def step_call(program: Program, plan: Plan, stage: int, batches: Batches) -> Callable[[int], Any]:
    """Returns a function that makes one step of a stage with all that is due beside it.

    Progress sweeps the stage evenly, since a step may cost more early in it than late.
    """
    drawn = [fill_batch(batches.batch(0, index), program.batch_shapes) for index in range(4)]
    state, it = program.init_state(0), plan.stages[stage]

    def call(index: int) -> Any:
        nonlocal state
        share = np.float32(it.start + (it.end - it.start) * (index * 37 % 100 + 0.5) / 100)
        state, _ = program.step(state, drawn[index % 4], index, share, share)
        return state

    return call


def loop_overhead(program: Program, batches: Batches, rounds: int) -> float:
    """Seconds that feeding, metrics and the host's own work add to a step.

    The loop is that of experiments/train.py without what is not charged: batches are made ahead by
    a thread, sums are fetched one step late.
    """
    from experiments.data.prefetch import Prefetcher
    from experiments.meter import Meter

    drawn = [fill_batch(batches.batch(0, index), program.batch_shapes) for index in range(4)]
    state, steps, meter = program.init_state(0), 20, Meter()
    share = np.float32(0.5)
    differences = []
    for _ in range(rounds):
        begun = time.perf_counter()
        for step in range(steps):
            state, _sums = program.step(state, drawn[step % 4], step, share, share)
        jax.block_until_ready(state)
        bare_s = time.perf_counter() - begun
        with Prefetcher(batches, 0, 0) as feed:
            begun = time.perf_counter()
            for step in range(steps):
                batch = fill_batch(feed.next(), program.batch_shapes)
                state, sums = program.step(state, batch, step, share, share)
                meter.fetch()
                meter.hold(step + 1, sums)
            meter.fetch()
            jax.block_until_ready(state)
            differences.append((time.perf_counter() - begun - bare_s) / steps)
    return statistics.median(differences)


def measure(experiment: Experiment, workdir: pathlib.Path, rounds: int) -> Measured:
    """Plans a run of the experiment and measures what its steps take."""
    prepared = prepare(experiment.data)
    batches = Batches(prepared, experiment.data, "train", examples_per_step(experiment))
    stages = Stages(experiment)
    times = ProgramTimes(experiment, batches, this_device(), workdir)
    plan = plan_run(experiment, stages, times, find_reference("here"), Before()).plan
    base_program, base_time = times.base()
    base_plan = Plan((dataclasses.replace(plan.stages[-1], start=0.0, end=1.0),))
    base_call = step_call(base_program, base_plan, 0, batches)
    # Shares of the budget that the stages spend, at what their steps take.
    charged = takes = 0.0
    for index, stage in enumerate(plan.stages):
        call = step_call(stages.program(index), plan, index, batches)
        ratio = compare_calls(base_call, call, base_time.seconds, rounds).median
        charge_s = sum(p["calls_per_step"] * p["seconds"] for p in stage.programs.values())
        charged += stage.steps * charge_s / base_time.seconds
        takes += stage.steps * ratio
    return Measured(
        experiment.name,
        charged / plan.total_steps,
        takes / plan.total_steps,
        loop_overhead(stages.last, batches, max(rounds // 3, 3)),
    )


def main(argv: Sequence[str]) -> int:
    names = _ONLY.value or ["baseline", *CHALLENGERS]
    if unknown := set(names) - {"baseline", *CHALLENGERS}:
        raise UserError(f"--only {', '.join(unknown)}: not one of {', '.join(CHALLENGERS)}.")
    enable_compilation_cache()
    device = this_device()
    table = Table(
        "experiment",
        "charged",
        "takes",
        "charged / takes",
        "loop, of 50 ms",
        title=f"steps of the plain program; {device.kind}, {device.processors} cores",
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            experiment = registry.resolve(f"{_FAMILY.value}_{name}", "demo")
            one = measure(experiment, pathlib.Path(folder), _ROUNDS.value)
            found.append(dataclasses.asdict(one) | {"ratio": one.ratio, "overhead": one.overhead})
            table.add_row(
                one.method,
                f"{one.charged:.3f}",
                f"{one.takes:.3f}",
                f"{one.ratio:.3f}",
                f"{100 * one.overhead:+.1f} %",
            )
    Console(width=100).print(table)
    if _JSON.value:
        pathlib.Path(_JSON.value).write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    run_main(main)
