"""The smallest gain of interest: a share of the budget, in nats of the baseline's own loss."""

import dataclasses
import math
import re
from collections.abc import Sequence

import numpy as np

from experiments.comparison.runs import Run
from models.errors import UserError

# The baseline's curve is read from here to its end, in shares of the budget.
_CURVE_FROM = 0.75
# A second budget must differ by this factor to give a slope.
_BUDGET_RATIO = 1.25
# Exponent of the loss over the amount of data (Hoffmann et al. 2022, arXiv 2203.15556, section
# 3.3): a secant over two budgets is the slope between them, and at this one it is so much less.
_EXPONENT = 0.28


@dataclasses.dataclass(frozen=True)
class Margin:
    """What a gain must come to before it matters, and how that was converted."""

    # Nats; NaN where it could not be converted.
    loss: float
    # Nats that the baseline gains when the logarithm of its budget grows by 1; NaN if unknown.
    slope: float
    how: str

    @property
    def known(self) -> bool:
        return math.isfinite(self.loss) and self.loss > 0

    def speedup(self, difference: float) -> float:
        """The share by which the budget would have to grow to gain this difference in loss."""
        if not self.slope > 0:
            return math.nan
        return math.expm1(min(difference / self.slope, 50.0))


@dataclasses.dataclass(frozen=True)
class MarginRequest:
    """A margin as the user gives it."""

    amount: float
    unit: str  # "speedup" or "nats"

    def __str__(self) -> str:
        if self.unit == "nats":
            return f"{self.amount:g} nats"
        return f"{100 * self.amount:g} % of the budget"


DEFAULT_MARGIN = MarginRequest(0.05, "speedup")


def parse_margin(text: str) -> MarginRequest:
    """Reads `5%` (of the budget) or `0.01nats`; raises UserError on anything else."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%|nats)", text.strip())
    if not match or float(match[1]) <= 0:
        raise UserError(f"--margin {text}: write a share of the budget as 5%, or a loss, 0.01nats.")
    amount = float(match[1])
    return (
        MarginRequest(amount / 100, "speedup") if match[2] == "%" else MarginRequest(amount, "nats")
    )


def find_margin(
    request: MarginRequest, baseline: Sequence[Run], other_budgets: Sequence[Sequence[Run]]
) -> Margin:
    """Converts the request by the slope of the baseline's loss over the logarithm of its budget.

    Args:
      request: what the user takes for the smallest gain of interest.
      baseline: its runs at this budget.
      other_budgets: its runs, otherwise the same, at each other budget. Where there are none the
        slope is that of the runs themselves over the last quarter of the budget, which the decay of
        the learning rate makes a rough figure.
    """
    slope, source = _slope(baseline, other_budgets)
    if request.unit == "nats":
        return Margin(request.amount, slope, f"{request}, as given")
    loss = slope * math.log1p(request.amount)
    if not loss > 0:
        how = (
            f"{request} cannot be converted: {source}. Give --margin in nats, as --margin=0.01nats"
        )
        return Margin(math.nan, math.nan, how)
    return Margin(loss, slope, f"{request} = {loss:.4g} nats, by {source}")


def _slope(baseline: Sequence[Run], other_budgets: Sequence[Sequence[Run]]) -> tuple[float, str]:
    here = [run for run in baseline if math.isfinite(run.final_loss)]
    if not here:
        return math.nan, "no run of the baseline reached its end"
    budget_s = float(np.mean([run.rst_s for run in here]))
    nearest: tuple[float, list[Run]] | None = None
    for others in other_budgets:
        there = [run for run in others if math.isfinite(run.final_loss)]
        if not there:
            continue
        distance = math.log(float(np.mean([run.rst_s for run in there])) / budget_s)
        enough = abs(distance) >= math.log(_BUDGET_RATIO)
        if enough and (nearest is None or abs(distance) < abs(nearest[0])):
            nearest = distance, there
    if nearest is not None:
        distance, there = nearest
        gain = float(np.mean([r.final_loss for r in here]) - np.mean([r.final_loss for r in there]))
        slope = gain / distance * math.exp(_EXPONENT * distance / 2)
        return slope, (
            f"the baseline's final losses at two budgets, this one and {math.exp(distance):.3g} "
            f"times it ({slope:.4g} nats per e-fold)"
        )
    points = [_loss_at(run, _CURVE_FROM) for run in here]
    finals = [run.final_loss for run in here]
    known = [(a, b) for a, b in zip(points, finals, strict=True) if math.isfinite(a)]
    if not known:
        return math.nan, "the baseline has too few evaluations in the last quarter of its budget"
    slope = float(np.mean([a - b for a, b in known])) / math.log(1 / _CURVE_FROM)
    if slope <= 0:
        return slope, "the baseline's loss does not fall over the last quarter of its budget"
    return slope, (
        f"the fall of the baseline's own loss over the last quarter of its budget "
        f"({slope:.4g} nats per e-fold; a second budget of the baseline would make it exact)"
    )


def _loss_at(run: Run, share: float) -> float:
    """Validation loss at a share of the budget, between evaluations; NaN before the first."""
    curve, at = run.validation, share * run.rst_s
    # A hair of slack: the evaluation at 75 % may lie one step before or after.
    if len(curve) < 2 or curve.rst_s[0] > at * 1.02:
        return math.nan
    return float(np.interp(at, curve.rst_s, curve.loss))
