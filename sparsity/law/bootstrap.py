"""Resamples the points and fits again, so that every figure carries an interval."""

from typing import NamedTuple

import numpy as np

from sparsity.law.fit import Fit
from sparsity.law.form import Coefficients
from sparsity.law.points import Points
from sparsity.law.solve import minimise, problem
from sparsity.law.variables import FLOOR, random_starts, to_coefficients

# Besides the optimum itself, so that a resample with its minimum elsewhere finds it.
_RANDOM_STARTS = 2


class Resamples(NamedTuple):
    """Refits of R resamples."""

    # Seven arrays of length R.
    coefficients: Coefficients
    # Multiplier of each N:M pattern, arrays of length R.
    multipliers: dict[str, np.ndarray]


def resample_weights(points: Points, count: int, seed: tuple[int, ...]) -> np.ndarray:
    """Returns (count, P) multiplicities: points are drawn with replacement.

    Within the unstructured runs and within each pattern apart, so that no multiplier is ever left
    without a point.
    """
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    weights = np.zeros((count, len(points)))
    for stratum in np.unique(points.pattern):
        members = np.flatnonzero(points.pattern == stratum)
        even = np.full(len(members), 1.0 / len(members))
        weights[:, members] = generator.multinomial(len(members), even, size=count)
    return weights


def bootstrap(fitted: Fit, count: int) -> Resamples:
    """Refits `count` resamples, each from the optimum and two random starts; the lowest wins."""
    frame, recipe = fitted.frame, fitted.recipe
    weights = resample_weights(fitted.points, count, seed=(recipe.seed, 1))
    starts = [fitted.variables[None], random_starts(frame, _RANDOM_STARTS, (recipe.seed, 2))]
    tried = np.concatenate(starts)
    rows = problem(frame, np.repeat(tried, count, axis=0))
    rows = rows._replace(weights=np.tile(weights, (len(tried), 1)))
    solved = minimise(frame, rows, recipe.residual, recipe.delta)
    best = np.argmin(solved.objective.reshape(len(tried), count), axis=0)
    variables = solved.variables.reshape(len(tried), count, -1)[best, np.arange(count)]
    worth = np.exp(variables[:, FLOOR + 1 :]).T
    return Resamples(
        coefficients=to_coefficients(variables, frame),
        multipliers=dict(zip(fitted.points.patterns, worth, strict=True)),
    )
