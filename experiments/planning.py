"""Plans a run: times its programs, turns seconds here into reference seconds, counts steps."""

import dataclasses
import functools
from typing import Any

from experiments.budget import Budget, Plan, Stage, StageCost, make_plan, parse_budget
from experiments.config import Experiment
from experiments.methods.api import Before, StageSpec, Timed
from experiments.program import Program
from experiments.program_time import ProgramTime, ProgramTimes
from experiments.reference import Anchor, Converted, Reference, cost_of, identify
from experiments.stages import GROW, Growth, Stages
from models.errors import UserError

# Kind of program → calls_per_step, seconds of one call with their bounds, and free where it is
# declared so.
Charge = dict[str, dict[str, Any]]


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

    A stage's seconds per step are Σ calls per step × reference seconds of a call over its programs:
    the training step and what runs beside it, but for those that are declared free, and the program
    that grows the last state of the stage before into its first. That one runs once, and its share
    in each step is known as soon as the steps are. It is planned like the others, and not charged
    as a run measures it, so that all runs of a working folder have the same steps.

    Raises UserError where the budget buys no step, or less than what was spent before the first.
    """
    prices = _Prices(reference, times)
    steps = [prices.step(spec, stages.program(index)) for index, spec in enumerate(stages.specs)]
    growths = [prices.growth(stages.growth(index)) for index in range(1, len(steps))]
    entering = [0.0, *(growth.seconds for growth in growths)]
    plan = make_plan(
        _left(parse_budget(experiment.budget), before),
        [
            StageCost(spec.name, spec.end, step_seconds(charge), entering_s)
            for spec, charge, entering_s in zip(stages.specs, steps, entering, strict=True)
        ],
    )
    for stage, charge, growth in zip(plan.stages[1:], steps[1:], growths, strict=True):
        charge[GROW] = _calls(growth, 1 / stage.steps)
    staged = (
        dataclasses.replace(stage, programs=charge)
        for stage, charge in zip(plan.stages, steps, strict=True)
    )
    here, charged = prices.training(stages.specs[-1].timed[-1], stages.last)
    return Planned(Plan(tuple(staged), before.charged_s), here, charged)


def step_seconds(charge: Charge) -> float:
    """Reference seconds charged for a step."""
    return sum(
        one["calls_per_step"] * one["seconds"] for one in charge.values() if not one.get("free")
    )


class _Prices:
    """Reference seconds of one call of each program."""

    def __init__(self, reference: Reference, times: ProgramTimes):
        self._reference = reference
        self._times = times
        # Asked for by references that convert, and then for every program.
        self._anchor = functools.cache(lambda: _anchor(times))

    def step(self, spec: StageSpec, program: Program) -> Charge:
        """What a step of a stage is charged for, without what entering the stage takes."""
        charge = {}
        for timed in spec.timed:
            _, charged = self.training(timed, program)
            charge[timed.kind] = _calls(charged, timed.calls_per_step)
        for side in program.sides:
            here = self._times.seconds(program, side.kind)
            charged = self._convert(program.experiment, side.kind, here, side.run)
            charge[side.kind] = _calls(charged, side.calls_per_run / side.every_steps)
            if side.free:
                charge[side.kind]["free"] = True
        return charge

    def training(self, timed: Timed, program: Program) -> tuple[ProgramTime, Converted]:
        """The time here of a training step, and its reference seconds."""
        here = self._times.seconds(program, timed.kind, timed.progress)
        converted = self._convert(
            program.experiment, timed.kind, here, program.train_step, timed.layers
        )
        return here, converted

    def growth(self, growth: Growth) -> Converted:
        here = self._times.growth(growth)
        return self._convert(growth.after.experiment, GROW, here, growth.run)

    def _convert(
        self,
        experiment: Experiment,
        kind: str,
        here: ProgramTime,
        compiled: Any,
        layers: float | None = None,
    ) -> Converted:
        program = identify(experiment, kind, layers=layers)
        return self._reference.convert(program, here, cost_of(compiled), self._anchor)


def _anchor(times: ProgramTimes) -> Anchor:
    program, here = times.base()
    return Anchor(identify(program.experiment), here, cost_of(program.train_step))


def _calls(charged: Converted, calls_per_step: float) -> dict[str, Any]:
    return {"calls_per_step": calls_per_step, **dataclasses.asdict(charged)}


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
