"""The lines of equal best sparsity over training FLOPs and non-zero weights, with their bands."""

from typing import NamedTuple

import numpy as np

from sparsity.law.accounting import ACCOUNTINGS
from sparsity.law.estimate import percentiles
from sparsity.law.form import Coefficients
from sparsity.law.optimal import chinchilla_multiple, dense_optimal_compute

LEVELS = (0.25, 0.5, 0.75, 0.875)
_SIZES = 41


class Contour(NamedTuple):
    """Where a sparsity is the best one: FLOPs as a function of the number of non-zero weights."""

    # "skipped" or "computed"; the dense-optimal line (sparsity 0) is the same for both.
    accounting: str
    sparsity: float
    # (P,) non-zero weights and FLOPs, and the 5th and 95th percentile of the FLOPs over resamples
    # (NaN without resamples).
    size: np.ndarray
    compute: np.ndarray
    low: np.ndarray
    high: np.ndarray


def contours(
    coefficients: Coefficients,
    resampled: Coefficients | None,
    sizes: tuple[float, float],
    levels: tuple[float, ...] = LEVELS,
) -> list[Contour]:
    """Returns the dense-optimal line and the line of each level, for both accountings.

    The best sparsity depends on C / C*(N) alone, so every line is parallel to the dense-optimal
    one and needs no search: C = M(S) C*(N).
    """
    grid = np.geomspace(*sizes, _SIZES)
    return [
        _contour(coefficients, resampled, grid, accounting, level)
        for accounting in ACCOUNTINGS
        for level in (0.0, *levels)
    ]


def _contour(
    coefficients: Coefficients,
    resampled: Coefficients | None,
    grid: np.ndarray,
    accounting: str,
    level: float,
) -> Contour:
    def line(values: Coefficients, size: np.ndarray) -> np.ndarray:
        multiple = chinchilla_multiple(values, level, accounting) if level else 1.0
        return multiple * dense_optimal_compute(values, size)

    low = high = np.full(len(grid), np.nan)
    if resampled is not None:
        low, _, high = percentiles(line(resampled, grid[:, None]))
    return Contour(accounting, level, grid, line(coefficients, grid), low, high)
