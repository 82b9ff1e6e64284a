"""`python -m experiments.methods.benchmark`: are the methods charged what they take, measured here?

Charged over taken: the seconds that a plan charges for a step, over those that a step takes with
all that runs beside it. Each program of a method, the plain program and the whole step are timed in
turns, in blocks of a fraction of a second, and a round's figures are multiples of its own plain
block, so that what else the machine does cancels. Seconds are of a synchronised wall clock, which
`python -m experiments.benchmark --only=clock` holds against XProf.

Loop: what a step takes longer in the training loop, with its input, metrics and log, than in a bare
chain of the same programs, as a share of a step of 50 ms.
"""

import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags
from rich.console import Console
from rich.table import Table

from experiments import registry
from experiments.config import Experiment
from experiments.data.batches import Batches
from experiments.data.prepare import prepare
from experiments.device import this_device
from experiments.display import Display
from experiments.launch import run_main
from experiments.methods.api import Before, depths
from experiments.methods.loop_overhead import draw, loop_overhead
from experiments.ntng import BASELINES, CHALLENGERS
from experiments.planning import plan_run, step_seconds
from experiments.program import (
    Program,
    compile_program,
    enable_compilation_cache,
    examples_per_step,
)
from experiments.program_key import program_key
from experiments.program_time import ProgramTime, base_of, from_ratio, time_growth
from experiments.reference import find_reference
from experiments.stages import GROW, Growth, Stages
from experiments.timing import (
    Call,
    Median,
    calls_per_block,
    interleaved,
    make_call,
    median,
)
from models.errors import UserError

_FAMILY = flags.DEFINE_enum("family", "bert", tuple(BASELINES), "Which model.")
_ONLY = flags.DEFINE_list("only", None, "Methods to measure; all by default.")
_LAYERS = flags.DEFINE_integer(
    "layers", None, "Layers of each stack; those of the demo by default."
)
_ROUNDS = flags.DEFINE_integer("rounds", 8, "Rounds of blocks that charges are taken from.")
_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")

# The step that the loop's overhead is a share of.
_STEP_S = 0.050


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What one method is charged and takes; seconds are multiples of the plain step's."""

    method: str
    plain_s: float
    # Of a step, by the plan and by the clock, and the one over the other.
    charged: float
    taken: Median
    ratio: Median
    # Of one call of each program, by stage and kind; also where it is charged like the plain one.
    programs: dict[str, Median]
    # Seconds that the loop adds to a step.
    loop_s: Median


class _Times:
    """Gives a plan the seconds measured here, as `ProgramTimes` gives it those of a device."""

    def __init__(
        self, plain: Program, plain_s: float, ratios: dict[tuple[Experiment, str], Median]
    ):
        self._plain = plain
        self._plain_time = ProgramTime(plain_s, 0.0, "measured here")
        self._ratios = ratios

    def seconds(self, program: Program, kind: str, progress: float = 0.0) -> ProgramTime:
        if program_key(program.experiment, kind) == program_key(self._plain.experiment):
            return self._plain_time
        return from_ratio(self._plain_time, self._ratios[program.experiment, kind])

    def growth(self, growth: Growth) -> ProgramTime:
        return time_growth(growth)

    def base(self) -> tuple[Program, ProgramTime]:
        return self._plain, self._plain_time


def measure(
    experiment: Experiment, compile_plain: Callable[[Experiment], Program], rounds: int
) -> Measured:
    """Times the programs of an experiment and its steps, and plans a run by the former."""
    prepared = prepare(experiment.data)
    batches = Batches(prepared, experiment.data, "train", examples_per_step(experiment))
    stages, plain = Stages(experiment), compile_plain(base_of(experiment))
    plain_call = make_call(plain, "train", 0.0, batches)
    programs = _programs(stages)
    steps = [step_call(stages, index, batches) for index in range(len(stages.specs))]

    calls = [plain_call, *(make_call(*program, batches) for program in programs.values())]
    blocks = [(call, calls_per_block(_once_s(call))) for call in calls]
    for index, step in enumerate(steps):
        least = calls_per_block(_once_s(step))
        blocks.append((step, whole_periods(stages.program(index), least)))
    plain_s, *others = (np.array(seconds) for seconds in interleaved(blocks, rounds))
    ratios = dict(zip(programs, (median(seconds / plain_s) for seconds in others), strict=False))
    step_s = others[len(programs) :]

    middle_s = float(np.median(plain_s))
    known = {(of.experiment, kind): ratios[name] for name, (of, kind, _) in programs.items()}
    times: Any = _Times(plain, middle_s, known)
    plan = plan_run(experiment, stages, times, find_reference("here"), Before()).plan
    shares = [stage.steps / plan.total_steps for stage in plan.stages]
    charged_s = sum(
        share * step_seconds({kind: one for kind, one in stage.programs.items() if kind != GROW})
        for share, stage in zip(shares, plan.stages, strict=True)
    )
    taken_s = sum(share * seconds for share, seconds in zip(shares, step_s, strict=True))
    charged, taken = charged_s / middle_s, taken_s / plain_s
    for stage in plan.stages[1:]:
        grown = stage.programs[GROW]["seconds"] / middle_s
        ratios[f"{stage.name}: {GROW}"] = Median(grown, grown, grown)
    return Measured(
        method=experiment.name,
        plain_s=middle_s,
        charged=charged,
        taken=median(taken),
        ratio=median(charged / taken),
        programs=ratios,
        loop_s=loop_overhead(stages.last, batches),
    )


def _programs(stages: Stages) -> dict[str, tuple[Program, str, float]]:
    """(program, kind, progress told to it) by name, of all that a plan charges for a step."""
    found: dict[str, tuple[Program, str, float]] = {}
    for index, spec in enumerate(stages.specs):
        program, of = stages.program(index), f"{spec.name}: " if len(stages.specs) > 1 else ""
        found |= {of + one.kind: (program, one.kind, one.progress) for one in spec.timed}
        found |= {of + side.kind: (program, side.kind, 0.0) for side in program.sides}
    return found


def step_call(stages: Stages, index: int, batches: Batches) -> Call:
    """Returns a function that queues one step of a stage with all that is due beside it.

    Progress sweeps the stage evenly, since a step may cost more early in it than late.
    """
    program, spec = stages.program(index), stages.specs[index]
    start = stages.specs[index - 1].end if index else 0.0
    drawn = draw(program, batches)
    state = program.init_state(0)

    def call(step: int) -> Any:
        nonlocal state
        share = np.float32(start + (spec.end - start) * (step * 37 % 100 + 0.5) / 100)
        state, _ = program.step(state, drawn[step % len(drawn)], step, share, share)
        return state

    return call


def whole_periods(program: Program, calls: int) -> int:
    """At least so many steps, in which everything beside them is due as often as in any others."""
    period = math.lcm(*(side.every_steps for side in program.sides))
    return math.ceil(calls / period) * period


def _once_s(call: Call) -> float:
    jax.block_until_ready(call(0))
    begun = time.perf_counter()
    jax.block_until_ready(call(1))
    return time.perf_counter() - begun


def _experiment(family: str, name: str, layers: int | None) -> Experiment:
    experiment = registry.resolve(f"{family}_{name}", "demo")
    if layers is not None:
        model: Any = experiment.model
        deep = dataclasses.replace(model, **dict.fromkeys(depths(model), layers))
        experiment = dataclasses.replace(experiment, model=deep)
    experiment.check()
    return experiment


def _row(one: Measured) -> tuple[str, ...]:
    loop = Median(*(100 * seconds / _STEP_S for seconds in one.loop_s))
    programs = [
        f"{name} {found.median:.3f}"
        + (f" ± {(found.high - found.low) / 2:.3f}" if found.high > found.low else "")
        for name, found in one.programs.items()
    ]
    return (
        one.method,
        f"{one.charged:.3f}",
        f"{one.taken.median:.3f}",
        f"{one.ratio.median:.3f} [{one.ratio.low:.3f}, {one.ratio.high:.3f}]",
        f"{loop.median:+.1f} [{loop.low:+.1f}, {loop.high:+.1f}] %",
        "\n".join(programs),
    )


def main(argv: Sequence[str]) -> int:
    names = _ONLY.value or ["baseline", *CHALLENGERS]
    if unknown := set(names) - {"baseline", *CHALLENGERS}:
        raise UserError(f"--only {', '.join(unknown)}: not one of {', '.join(CHALLENGERS)}.")
    experiments = [_experiment(_FAMILY.value, name, _LAYERS.value) for name in names]
    enable_compilation_cache()
    device = this_device()
    plain: dict[str, Program] = {}

    def compile_plain(base: Experiment) -> Program:
        """One program for all methods with the same."""
        key = program_key(base)
        if key not in plain:
            plain[key] = compile_program(base)
        return plain[key]

    found = []
    with Display() as display:
        for experiment in experiments:
            display.start(f"measuring {experiment.name}", None)
            found.append(measure(experiment, compile_plain, _ROUNDS.value))
            display.stop()
            display.tell("  ".join(_row(found[-1])[:5]))
            if _JSON.value:
                stored = [dataclasses.asdict(one) for one in found]
                pathlib.Path(_JSON.value).write_text(json.dumps(stored, indent=1) + "\n")
    table = Table(
        "experiment",
        "charged",
        "taken",
        "charged / taken",
        "loop, of 50 ms",
        "programs",
        title=f"in steps of the plain program, {1e3 * found[0].plain_s:.1f} ms; medians with 95 % "
        f"intervals; {device.kind}, {device.processors} cores",
    )
    for one in found:
        table.add_row(*_row(one))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    run_main(main)
