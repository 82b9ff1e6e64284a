"""Time to a target, and performance profiles against a frozen reference set (as in AlgoPerf)."""

import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.comparison.curves import Curve
from models.errors import UserError

# A method that takes this many times the reference's time scores nothing, as one that misses.
WORST_RATIO = 4.0


@dataclasses.dataclass(frozen=True)
class Target:
    """One workload of the reference set: a loss, and the time that the reference took to it."""

    loss: float
    seconds: float


# Workload → target. What a score is made of and no method can move.
ReferenceSet = Mapping[str, Target]


def time_to_loss(curve: Curve, target: float) -> float:
    """Reference seconds until validation first reaches `target`, ∞ for a miss.

    Between two evaluations the loss is taken to fall in a straight line. Nothing after a loss that
    is not finite counts.
    """
    bad = np.flatnonzero(~np.isfinite(curve.loss))
    end = bad[0] if len(bad) else len(curve)
    reached = np.flatnonzero(curve.loss[:end] <= target)
    if not len(reached):
        return math.inf
    at = int(reached[0])
    if at == 0:
        return float(curve.rst_s[0])
    before, after = float(curve.loss[at - 1]), float(curve.loss[at])
    share = (before - target) / (before - after)
    start, stop = float(curve.rst_s[at - 1]), float(curve.rst_s[at])
    return start + share * (stop - start)


def median_time(times: Sequence[float]) -> float:
    """The median over seeds; a miss counts as ∞, so that half of them make the median one."""
    ordered = sorted(times)
    return ordered[len(ordered) // 2] if len(ordered) % 2 else _upper_median(ordered)


def _upper_median(ordered: Sequence[float]) -> float:
    # ∞ − ∞ has no mean: with an even number of seeds one infinite middle value decides.
    if math.isinf(ordered[len(ordered) // 2]):
        return math.inf
    return statistics.median(ordered)


def reference_target(curves: Sequence[Curve], loss: float, budget_s: float) -> Target:
    """The reference's own time to `loss`, its median over seeds; the whole budget for a miss."""
    seconds = median_time([time_to_loss(curve, loss) for curve in curves])
    return Target(loss, seconds if math.isfinite(seconds) else budget_s)


def ratios(times: Mapping[str, float], reference: ReferenceSet) -> dict[str, float]:
    """Time over reference time for each workload of the reference set; one not run is a miss."""
    return {
        workload: times.get(workload, math.inf) / target.seconds
        for workload, target in reference.items()
    }


def profile(values: Sequence[float], at: Sequence[float]) -> list[float]:
    """ρ(τ): the share of workloads whose ratio is at most τ (Dolan and Moré 2002)."""
    return [sum(value <= tau for value in values) / len(values) for tau in at]


def score(values: Sequence[float]) -> float:
    """1/τ_max · ∫₀^τ_max ρ(τ) dτ in closed form: the mean of max(0, 1 − ratio / τ_max).

    The reference itself scores 1 − 1/τ_max = 0.75 at τ_max = 4; a miss scores 0. AlgoPerf divides
    by the best submission's time instead, whence a bystander can turn two methods round.
    """
    return math.fsum(max(0.0, 1 - value / WORST_RATIO) for value in values) / len(values)


def geometric_speedup(values: Sequence[float]) -> float | None:
    """Geometric mean of reference time over time; None with a miss, of which there is no mean."""
    if any(math.isinf(value) for value in values):
        return None
    return math.exp(-math.fsum(math.log(value) for value in values) / len(values))


def write_reference_set(path: pathlib.Path, reference: ReferenceSet) -> None:
    stored = {workload: dataclasses.asdict(target) for workload, target in reference.items()}
    path.write_text(json.dumps({"format": 1, "targets": stored}, indent=1) + "\n")


def read_reference_set(path: pathlib.Path) -> dict[str, Target]:
    """Reads a frozen reference set; raises UserError where it is none."""
    try:
        stored: Any = json.loads(path.read_text())
        targets = {name: Target(**value) for name, value in stored["targets"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"--frozen {path}: not a reference set ({error}).") from None
    for name, target in targets.items():
        if not (0 < target.seconds < math.inf and math.isfinite(target.loss)):
            raise UserError(f"--frozen {path}: {name} has no finite time above 0 and finite loss.")
    return targets
