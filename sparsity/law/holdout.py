"""Errors out of sample: fit without the largest models, or the longest runs, and predict them."""

import numpy as np

from sparsity.law.fit import Errors, Fit, errors_of
from sparsity.law.form import Coefficients
from sparsity.law.points import UNSTRUCTURED, Points
from sparsity.law.solve import minimise, problem
from sparsity.law.variables import FLOOR, random_starts, to_coefficients

_RANDOM_STARTS = 15


def hold_out(fitted: Fit) -> dict[str, Errors | None]:
    """Returns the errors on the largest N and on the largest D, of fits that have not seen them.

    None where too little is left to fit: fewer points than coefficients, one value of an axis, or
    an N:M pattern without a run.
    """
    points = fitted.points
    return {
        "largest N": _errors_without(fitted, points.size == points.size.max()),
        "largest D": _errors_without(fitted, points.data == points.data.max()),
    }


def guesses(points: Points) -> list[str]:
    """Returns a warning for each held-out axis that leaves two values, where three are needed."""
    return [
        f"without the largest {symbol} two values of {symbol} are left, which leave "
        f"{coefficients} free: its error out of sample is a guess."
        for symbol, values, coefficients in (
            ("N", points.size, "b_N and c"),
            ("D", points.data, "b_D and c"),
        )
        if len(np.unique(values)) == 3
    ]


def _errors_without(fitted: Fit, held: np.ndarray) -> Errors | None:
    points, frame, recipe = fitted.points, fitted.frame, fitted.recipe
    kept = ~held
    law = kept & (points.pattern == UNSTRUCTURED)
    enough = (
        kept.sum() >= len(frame.lower)
        and set(points.pattern[kept]) == set(points.pattern)
        and len(np.unique(points.sparsity[law])) > 1
        and len(np.unique(points.size[kept])) > 1
        and len(np.unique(points.data[kept])) > 1
    )
    if not enough:
        return None
    starts = random_starts(frame, _RANDOM_STARTS, seed=(recipe.seed, 4))
    rows = problem(frame, np.concatenate([fitted.variables[None], starts]))
    rows = rows._replace(weights=np.tile(kept.astype(float), (len(rows.start), 1)))
    solved = minimise(frame, rows, recipe.residual, recipe.delta)
    variables = solved.variables[np.argmin(solved.objective)]
    coefficients: Coefficients = to_coefficients(variables, frame)
    worth = dict(zip(points.patterns, np.exp(variables[FLOOR + 1 :]), strict=True))
    return errors_of(coefficients, points, worth, held)
