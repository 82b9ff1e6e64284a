"""Budgets: what a user grants (`90s`, `6h`, `2000steps`) and the exact number of steps it buys."""

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from models.errors import UserError

_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True)
class Budget:
    """An amount of training: reference-system seconds, or a number of steps."""

    amount: float
    unit: str  # "seconds" or "steps"


def parse_budget(text: str) -> Budget:
    """Reads `90s`, `30min`, `6h` or `2000steps`; raises UserError on anything else."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip())
    if not match:
        raise UserError(f"--budget {text}: not a number with a unit; write 90s, 6h or 2000steps.")
    amount, unit = float(match[1]), match[2]
    if not unit:
        raise UserError(
            f"--budget {text}: the unit is missing; write {text}s, {text}h or {text}steps."
        )
    if unit in ("step", "steps"):
        if amount < 1 or amount != int(amount):
            raise UserError(f"--budget {text}: steps are whole and at least 1.")
        return Budget(amount, "steps")
    if unit not in _SECONDS:
        raise UserError(f"--budget {text}: unknown unit {unit}; write s, min, h or steps.")
    if not 0 < amount < math.inf:
        raise UserError(f"--budget {text}: must be above 0 and finite.")
    return Budget(amount * _SECONDS[unit], "seconds")


@dataclasses.dataclass(frozen=True)
class Stage:
    """Steps of one compiled program, from one share of the budget to another."""

    name: str
    # Shares of the budget at which the stage starts and ends.
    start: float
    end: float
    first_step: int
    steps: int
    # Reference-system seconds charged for each of its steps, which share what entering it took.
    seconds_per_step: float
    # What the charge is made of: kind of program → calls_per_step, seconds (of one call), and free
    # where it is declared so and not charged.
    programs: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)


class StageCost(NamedTuple):
    """What a plan must know of a stage."""

    name: str
    # Share of the budget at which it ends; 1 for the last.
    end: float
    # Reference-system seconds of a step, and once of turning the state of the stage before into
    # this one's.
    step_s: float
    entering_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The whole run, decided before its first step: which program runs at which step.

    Progress and reference-system time (RST) are functions of the step alone, so that preemption
    neither gives nor takes budget. Within a stage progress grows linearly; after the last step it
    is exactly 1. RST = Σ over steps of the reference seconds of their program (Kaddour et al. 2023,
    arXiv 2307.06440, section 2).
    """

    stages: tuple[Stage, ...]
    # Reference-system seconds taken from the budget before the first step.
    before_s: float = 0.0

    @property
    def total_steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    def stage_at(self, step: int) -> Stage:
        """The stage that runs step `step` (the last one for the step after the end)."""
        for stage in self.stages:
            if step < stage.first_step + stage.steps:
                return stage
        return self.stages[-1]

    def stage_index(self, step: int) -> int:
        """Which stage runs step `step`, counted from 0."""
        return self.stages.index(self.stage_at(step))

    def progress(self, step: int) -> float:
        """Share of the budget spent before step `step`, in [0, 1]."""
        stage = self.stage_at(step)
        share = (step - stage.first_step) / stage.steps
        return stage.end if share == 1 else stage.start + (stage.end - stage.start) * share

    def rst_s(self, step: int) -> float:
        """Reference-system seconds spent before step `step`."""
        done = self.before_s
        for stage in self.stages:
            inside = min(max(step - stage.first_step, 0), stage.steps)
            done += inside * stage.seconds_per_step
        return done


def make_plan(budget: Budget, stages: Sequence[StageCost]) -> Plan:
    """Turns a budget, in reference-system seconds or in steps, into the steps of stages in order.

    A budget in seconds is one counter: a stage ends with the step nearest to its share, what that
    leaves over or takes ahead counts in the next one, and the last stops before it overspends. What
    entering a stage takes leaves it fewer steps. A budget in steps is shared out by the same shares
    of time.

    Raises:
      UserError: a stage would have no step.
    """
    seconds = budget.amount
    if budget.unit == "steps":
        # Steps in all = Σ (share · seconds − seconds of entering) / seconds of a step.
        start, steps_per_second, steps_entering = 0.0, 0.0, 0.0
        for _, end, step_s, entering_s in stages:
            steps_per_second += (end - start) / step_s
            steps_entering += entering_s / step_s
            start = end
        seconds = (budget.amount + steps_entering) / steps_per_second
    planned, start, first_step, spent = [], 0.0, 0, 0.0
    for name, end, step_s, entering_s in stages:
        last = end == 1.0
        spent += entering_s
        if budget.unit == "steps" and last:
            steps = int(budget.amount) - first_step
        else:
            # A hair of slack keeps 3 × 0.1 s within a budget of 0.3 s.
            steps_left = (end * seconds - spent) / step_s * (1 + 1e-12)
            steps = math.floor(steps_left if last else steps_left + 0.5)
        if steps < 1:
            raise UserError(
                f"budget of {seconds:.3g} s: no step fits into stage {name}, which takes "
                f"{step_s:.3g} s a step; give at least "
                f"{(entering_s + step_s) / (end - start):.3g}s."
            )
        planned.append(Stage(name, start, end, first_step, steps, step_s + entering_s / steps))
        start, first_step, spent = end, first_step + steps, spent + steps * step_s
    return Plan(tuple(planned))
