"""Downstream scores of a method beside the baseline's, and where they contradict the loss."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from experiments.comparison.runs import Run
from experiments.comparison.statistics import Estimate, unpaired

# Two-sided level of the test on one task, which is not corrected for the number of tasks.
_LEVEL = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Downstream:
    """One task: mean scores after the last epoch over runs, beside the majority class's."""

    task: str
    metric: str
    baseline: float
    method: float
    # Runs that have scores on the task.
    baseline_runs: int
    method_runs: int
    majority: float
    # "better", "worse", "no difference shown" or "too few runs".
    found: str
    # Whether the task says the opposite of the loss.
    disagrees: bool


def compare_downstream(
    baseline: Sequence[Run], method: Sequence[Run], loss: Estimate | None
) -> tuple[Downstream, ...]:
    """Every task that both have scores on. `loss` is the difference in validation loss.

    A run counts once, with the mean of its fine-tunings: that their seeds agree says nothing of
    another run of the same method.
    """
    theirs, ours = _by_task(baseline), _by_task(method)
    return tuple(
        _task(task, metric, theirs[task, metric], ours[task, metric], loss)
        for task, metric in sorted(theirs.keys() & ours.keys())
    )


def _by_task(runs: Sequence[Run]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(task, metric) → each run's mean score, and the majority's."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in runs:
        scores: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for one in run.downstream:
            if math.isfinite(one.last):
                scores.setdefault((one.task, one.metric), []).append((one.last, one.majority))
        for key, pairs in scores.items():
            found.setdefault(key, []).append(tuple(np.mean(pairs, axis=0).tolist()))
    return found


def _task(
    task: str,
    metric: str,
    theirs: list[tuple[float, float]],
    ours: list[tuple[float, float]],
    loss: Estimate | None,
) -> Downstream:
    before, after = [score for score, _ in theirs], [score for score, _ in ours]
    found, sign = "too few runs", 0
    if min(len(before), len(after)) >= 3:
        # Scores are better when higher, so the method's stand first.
        estimate = unpaired(after, before)
        found = "no difference shown"
        if estimate.p_at_most(0) < _LEVEL / 2:
            found, sign = "better", 1
        elif estimate.p_at_least(0) < _LEVEL / 2:
            found, sign = "worse", -1
    loss_sign = 0
    if loss is not None:
        loss_sign = int(loss.p_at_most(0) < _LEVEL / 2) - int(loss.p_at_least(0) < _LEVEL / 2)
    return Downstream(
        task=task,
        metric=metric,
        baseline=float(np.mean(before)),
        method=float(np.mean(after)),
        baseline_runs=len(before),
        method_runs=len(after),
        majority=theirs[0][1],
        found=found,
        disagrees=sign * loss_sign < 0,
    )
