"""Plans a run: times its programs, turns seconds here into reference seconds, counts steps."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from experiments.budget import Budget, Plan, Stage, make_plan, parse_budget
from experiments.config import Experiment
from experiments.methods.api import Before
from experiments.program import Program
from experiments.program_time import ProgramTime, ProgramTimes
from experiments.reference import Anchor, Converted, Reference, cost_of, identify
from experiments.stages import Stages
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Planned:
    """A plan and what it was made from."""

    plan: Plan
    # The training step of the last stage: its time here, and in reference seconds.
    here: ProgramTime
    charged: Converted

    def facts(self) -> dict[str, Any]:
        """What config.json keeps of it."""
        return {
            "stages": [dataclasses.asdict(stage) for stage in self.plan.stages],
            "before_s": self.plan.before_s,
            "from": dataclasses.asdict(self.here),
        }


def plan_from(facts: dict[str, Any]) -> Plan:
    """Reads a plan back from config.json."""
    return Plan(tuple(Stage(**stage) for stage in facts["stages"]), facts.get("before_s", 0.0))


def plan_run(
    experiment: Experiment,
    stages: Stages,
    times: ProgramTimes,
    reference: Reference,
    before: Before,
) -> Planned:
    """Decides the steps of every stage.

    A stage's seconds per step are Σ calls per step × reference seconds of a call over its programs,
    the training step and what runs beside it, but for those that are declared free.

    Raises UserError where the budget buys no step, or less than what was spent before the first.
    """
    charges: list[dict[str, dict[str, Any]]] = []
    anchor = functools.cache(lambda: _anchor(times))
    for index, spec in enumerate(stages.specs):
        program = stages.program(index)
        charge: dict[str, dict[str, Any]] = {}
        for timed in spec.timed:
            here = times.seconds(program, timed.kind, timed.progress)
            charged = _convert(reference, program, timed.kind, here, anchor, timed.layers)
            charge[timed.kind] = {
                "calls_per_step": timed.calls_per_step,
                **dataclasses.asdict(charged),
            }
            last = here, charged
        for side in program.sides:
            side_s = times.seconds(program, side.kind)
            found = _convert(reference, program, side.kind, side_s, anchor)
            charge[side.kind] = {
                "calls_per_step": side.calls_per_run / side.every_steps,
                **dataclasses.asdict(found),
            }
            if side.free:
                charge[side.kind]["free"] = True
        charges.append(charge)
    plan = make_plan(
        _left(parse_budget(experiment.budget), before),
        [
            (spec.name, spec.end, step_seconds(charge))
            for spec, charge in zip(stages.specs, charges, strict=True)
        ],
    )
    staged = tuple(
        dataclasses.replace(stage, programs=charge)
        for stage, charge in zip(plan.stages, charges, strict=True)
    )
    return Planned(Plan(staged, before.charged_s), *last)


def step_seconds(charge: dict[str, dict[str, Any]]) -> float:
    """Reference seconds charged for a step."""
    return sum(
        one["calls_per_step"] * one["seconds"] for one in charge.values() if not one.get("free")
    )


def _anchor(times: ProgramTimes) -> Anchor:
    program, here = times.base()
    return Anchor(identify(program.experiment), here, cost_of(program.train_step))


def _convert(
    reference: Reference,
    program: Program,
    kind: str,
    here: ProgramTime,
    anchor: Callable[[], Anchor],
    layers: float | None = None,
) -> Converted:
    experiment = program.experiment
    side = next((side for side in program.sides if side.kind == kind), None)
    cost = cost_of(program.train_step if side is None else side.run)
    return reference.convert(identify(experiment, kind, layers=layers), here, cost, anchor)


def _left(budget: Budget, before: Before) -> Budget:
    """What is left of a budget after what was charged before the first step."""
    if not before.charged_s or budget.unit == "steps":
        return budget
    left = budget.amount - before.charged_s
    if left <= 0:
        raise UserError(
            f"budget of {budget.amount:.3g} s: {before.charged_s:.3g} s of it are charged before "
            "the first step; give more, or a method that declares them free."
        )
    return Budget(left, budget.unit)
