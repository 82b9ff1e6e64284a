"""Fits the law to points from many starts and says how far the starts agree."""

import dataclasses

import numpy as np

from sparsity.law.form import Coefficients, loss
from sparsity.law.points import UNSTRUCTURED, Points
from sparsity.law.published import PUBLISHED
from sparsity.law.solve import evaluate, minimise, problem
from sparsity.law.variables import (
    FLOOR,
    Frame,
    frame_of,
    random_starts,
    to_coefficients,
    to_variables,
)

# A start agrees when its objective is within this of the best, relative (or in units of delta^2).
_AGREEMENT = 1e-6
_VARIABLE_NAMES = ("a_S", "b_S", "c_S", "b_N", "a_D", "b_D", "c")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """How the law is fitted."""

    # "raw" or "log": whether the Huber loss sees the difference of L or of log L.
    residual: str = "log"
    # Where the Huber loss turns from square to linear, in units of the residual.
    delta: float = 0.001
    # Random starts.
    starts: int = 100
    # Seed of the starts and of the resamples.
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """The best of many starts, with what is needed to judge it."""

    # What was fitted, and how.
    points: Points
    recipe: Recipe
    # The points in normalised form.
    frame: Frame
    # Normalised variables at the minimum, (7 + K,).
    variables: np.ndarray
    # Mean Huber loss at the minimum.
    objective: float
    # Largest component of the projected gradient of objective / delta^2.
    gradient: float
    # How many starts ended within 1e-6 of the best objective.
    agreeing: int
    # Coefficients that ended on a bound of what is allowed.
    at_bound: tuple[str, ...]

    @property
    def coefficients(self) -> Coefficients:
        """The seven coefficients as published laws state them."""
        return Coefficients(*map(float, to_coefficients(self.variables, self.frame)))

    @property
    def multipliers(self) -> dict[str, float]:
        """Dense weights that one non-zero weight of each N:M pattern is worth."""
        values = np.exp(self.variables[FLOOR + 1 :])
        return dict(zip(self.points.patterns, map(float, values), strict=True))


def recipe_for(family: str, residual: str | None, delta: float | None, **rest: int) -> Recipe:
    """Returns the family's published recipe (else Huber on log loss), with what is given instead.

    Without a delta, a residual other than the published one takes the one published for it.
    """
    published = PUBLISHED.get(family, PUBLISHED["t5_c4"])
    residual = residual or published.residual
    if delta is None:
        deltas = {law.residual: law.delta for law in PUBLISHED.values()}
        delta = deltas[residual]
    return Recipe(residual=residual, delta=delta, **rest)


def fit(points: Points, recipe: Recipe) -> Fit:
    """Minimises the recipe's Huber loss from `recipe.starts` random starts; the lowest wins."""
    frame = frame_of(points)
    starts = random_starts(frame, recipe.starts, seed=(recipe.seed, 0))
    solved = minimise(frame, problem(frame, starts), recipe.residual, recipe.delta)
    best = int(np.argmin(solved.objective))
    lowest = solved.objective[best]
    close = lowest * (1.0 + _AGREEMENT) + _AGREEMENT * recipe.delta**2
    variables = solved.variables[best]
    span = frame.upper - frame.lower
    bound = np.minimum(variables - frame.lower, frame.upper - variables) <= 1e-9 * span
    return Fit(
        points=points,
        recipe=recipe,
        frame=frame,
        variables=variables,
        objective=float(lowest),
        gradient=float(solved.gradient[best]),
        agreeing=int(np.sum(solved.objective <= close)),
        at_bound=tuple(
            name
            for name, on_bound in zip(_VARIABLE_NAMES + points.patterns, bound, strict=True)
            if on_bound
        ),
    )


def objective_of(coefficients: Coefficients, fitted: Fit) -> float:
    """Returns the objective that other coefficients have on the same points, same recipe."""
    recipe = fitted.recipe
    variables = to_variables(coefficients, fitted.frame)
    variables[FLOOR + 1 :] = fitted.variables[FLOOR + 1 :]
    return evaluate(fitted.frame, variables, recipe.residual, recipe.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Errors:
    """How far predictions are from measured losses."""

    # How many points were compared.
    points: int
    # Root of the mean squared difference of the loss.
    rmse: float
    # Mean and largest |predicted / measured - 1|.
    mean_relative: float
    max_relative: float


def errors_of(
    coefficients: Coefficients,
    points: Points,
    multipliers: dict[str, float],
    chosen: np.ndarray | None = None,
) -> Errors:
    """Compares predictions with the measured losses of the chosen points (all by default)."""
    chosen = np.ones(len(points), bool) if chosen is None else chosen
    worth = np.array([multipliers.get(name, 1.0) for name in points.pattern.tolist()])
    sparsity = np.where(points.pattern == UNSTRUCTURED, points.sparsity, 0.0)
    predicted = loss(coefficients, sparsity, points.size * worth, points.data)
    difference = (predicted - points.loss)[chosen]
    relative = np.abs(difference / points.loss[chosen])
    return Errors(
        points=len(difference),
        rmse=float(np.sqrt(np.mean(difference**2))),
        mean_relative=float(np.mean(relative)),
        max_relative=float(np.max(relative)),
    )
