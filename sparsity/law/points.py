"""Measured points (S, N, D, loss), checked so that what can be fitted from them is known."""

import dataclasses
import math

import numpy as np

from models.errors import UserError
from sparsity.law.form import Coefficients

UNSTRUCTURED = "unstructured"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """Columns of equal length, one entry a run."""

    # Which set of runs this is: a family of models on one task.
    name: str
    # What D counts.
    data_unit: str
    # S: fraction of zero weights at the end of training.
    sparsity: np.ndarray
    # N: non-zero weights outside embeddings.
    size: np.ndarray
    # D: tokens or images trained on.
    data: np.ndarray
    # Validation loss at the end of training.
    loss: np.ndarray
    # "unstructured" or an N:M pattern such as "2:4"; dense runs count as unstructured.
    pattern: np.ndarray
    # Where each point was read, for errors.
    origin: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The N:M patterns among the points, sorted by sparsity and name."""
        names = set(self.pattern.tolist()) - {UNSTRUCTURED}
        return tuple(sorted(names, key=lambda name: (pattern_sparsity(name), name)))


def pattern_sparsity(pattern: str) -> float:
    """Returns 1 - n/m of "n:m"; raises UserError where it is no such pattern with 0 < n < m."""
    kept, _, group = pattern.partition(":")
    if not (kept.isdigit() and group.isdigit() and 0 < int(kept) < int(group)):
        raise UserError(
            f"pattern {pattern!r}: give n:m with 0 < n < m (2:4 keeps 2 weights of every 4), "
            f"or {UNSTRUCTURED}."
        )
    return 1.0 - int(kept) / int(group)


def check(points: Points) -> None:
    """Raises UserError on the first thing that makes the law unfittable, naming the point."""
    for symbol, meaning, values in (
        ("N", "non-zero weights", points.size),
        ("D", "data", points.data),
        ("loss", "validation loss", points.loss),
    ):
        _refuse(points, ~np.isfinite(values), symbol, values, f"{meaning} must be a finite number")
        _refuse(points, values <= 0, symbol, values, f"{meaning} must be above 0")
    sparsity = points.sparsity
    _refuse(points, ~np.isfinite(sparsity), "S", sparsity, "sparsity must be a finite number")
    _refuse(points, sparsity < 0, "S", sparsity, "sparsity must be at least 0")
    hint = "; percentages are given as fractions, 75 % as 0.75" if np.any(sparsity > 1) else ""
    _refuse(points, sparsity >= 1, "S", sparsity, f"sparsity must be below 1{hint}")
    for name in points.patterns:
        off = (points.pattern == name) & (np.abs(sparsity - pattern_sparsity(name)) > 0.02)
        _refuse(points, off, "S", sparsity, f"a {name} run is {pattern_sparsity(name):g} sparse")

    needed = len(Coefficients._fields) + len(points.patterns)
    if len(points) < needed:
        raise UserError(
            f"{points.name}: {len(points)} points, but the law has {needed} coefficients"
            f"{' with those patterns' if points.patterns else ''}. Give at least {needed} points."
        )
    law = points.pattern == UNSTRUCTURED
    for values, symbol, coefficients, lost in _spreads(points, law):
        if len(np.unique(values)) == 1:
            raise UserError(
                f"{points.name}: every point has {symbol} = {values[0]:g}, so {coefficients} "
                f"cannot be told apart, nor {lost} known. Add runs with other values of {symbol}."
            )


def few_values(points: Points) -> list[str]:
    """Returns a warning for each axis with two values, where three coefficients hang on it."""
    law = points.pattern == UNSTRUCTURED
    return [
        f"only two values of {symbol} ({np.min(values):g}, {np.max(values):g}): {coefficients} "
        f"cannot be told apart, only their sum at those values; so {lost} is a guess."
        for values, symbol, coefficients, lost in _spreads(points, law)
        if len(np.unique(values)) == 2
    ]


def _spreads(points: Points, law: np.ndarray) -> tuple[tuple[np.ndarray, str, str, str], ...]:
    """Each axis of the law: its values, symbol, the coefficients and the figures hanging on it."""
    return (
        (points.sparsity[law], "S", "a_S, b_S and c_S", "what other sparsities are worth"),
        (points.size, "N", "a_S, c_S, b_N and c", "the dense size that a sparse model equals"),
        (points.data, "D", "a_D, b_D and c", "the Chinchilla line or the optimal sparsity"),
    )


def _refuse(points: Points, bad: np.ndarray, symbol: str, values: np.ndarray, why: str) -> None:
    if not np.any(bad):
        return
    first = int(np.argmax(bad))
    others = int(np.sum(bad)) - 1
    more = f" (and {others} more)" if others else ""
    given = "missing or not a number" if math.isnan(values[first]) else f"{values[first]:g}"
    raise UserError(f"{points.origin[first]}: {symbol} is {given}, but {why}{more}.")
