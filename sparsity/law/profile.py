"""How far each coefficient can be moved, the others following, before the fit gets worse."""

import dataclasses

import numpy as np

from sparsity.law.fit import Fit
from sparsity.law.form import Coefficients
from sparsity.law.solve import Problem, minimise, problem
from sparsity.law.variables import (
    B_D,
    B_N,
    B_S,
    FLOOR,
    LOG_A,
    LOG_C_S,
    LOG_E,
    to_coefficients,
)

_VARIABLES = (LOG_A, B_S, LOG_C_S, B_N, LOG_E, B_D, FLOOR)
_POSITION = dict(zip(Coefficients._fields, _VARIABLES, strict=True))
# How far positive coefficients are sought, as a factor either way.
_REACH = {"a_S": 1e3, "c_S": 1e3, "a_D": 1e6, "b_S": 1e3, "b_N": 1e3, "b_D": 1e3}
# Each search step splits the bracket of every side in so many parts.
_PARTS = 5
_SEARCH_STEPS = 6
# The curve has so many points on either side of the minimum, and the minimum.
_SIDE_POINTS = 7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """One coefficient's profile: the objective minimised over all the others."""

    # Which coefficient, and its value at the minimum.
    name: str
    best: float
    # Between these the objective rises by at most `flat` (a fraction) of its minimum.
    low: float
    high: float
    # Whether the range ends because a bound of what is allowed was met, not because it rose.
    open_low: bool
    open_high: bool
    # The curve over that range: values, objective / minimum - 1, and the refitted coefficients.
    values: np.ndarray
    excess: np.ndarray
    coefficients: Coefficients


def profiles(fitted: Fit, flat: float) -> list[Profile]:
    """Returns the profile of each of the seven coefficients over its flat range."""
    best = fitted.coefficients._asdict()
    limits = {(name, side): _limit(fitted, name, side) for name in best for side in (0, 1)}
    ends, is_open = _flat_ends(fitted, flat, limits)
    grids = {name: _curve(name, ends[name, 0], best[name], ends[name, 1]) for name in best}
    asked = [(name, value) for name in best for value in grids[name]]
    excess, variables = _refit(fitted, asked)
    found = []
    for index, name in enumerate(best):
        length = len(grids[name])
        rows = slice(index * length, (index + 1) * length)
        found.append(
            Profile(
                name=name,
                best=best[name],
                low=ends[name, 0],
                high=ends[name, 1],
                open_low=is_open[name, 0],
                open_high=is_open[name, 1],
                values=grids[name],
                excess=excess[rows],
                coefficients=to_coefficients(variables[rows], fitted.frame),
            )
        )
    return found


def _flat_ends(fitted: Fit, flat: float, limits: dict) -> tuple[dict, dict]:
    """Brackets, for every coefficient and side at once, where the objective has risen by `flat`."""
    sides = list(limits)
    best = fitted.coefficients._asdict()
    inside = {side: best[side[0]] for side in sides}
    outside = dict(limits)
    at_limit, _ = _refit(fitted, [(name, limits[name, side]) for name, side in sides])
    is_open = {side: bool(rise <= flat) for side, rise in zip(sides, at_limit, strict=True)}
    searched = [side for side in sides if not is_open[side]]
    fractions = np.arange(1, _PARTS) / _PARTS
    for _ in range(_SEARCH_STEPS):
        tried = {s: _between(s[0], inside[s], outside[s], fractions) for s in searched}
        rises, _ = _refit(fitted, [(s[0], value) for s in searched for value in tried[s]])
        for s, rise in zip(searched, rises.reshape(len(searched), -1), strict=True):
            above = rise > flat
            first = int(np.argmax(above)) if above.any() else len(rise)
            ladder = [inside[s], *tried[s], outside[s]]
            inside[s], outside[s] = float(ladder[first]), float(ladder[first + 1])
    return {s: limits[s] if is_open[s] else inside[s] for s in sides}, is_open


def _limit(fitted: Fit, name: str, side: int) -> float:
    frame, position = fitted.frame, _POSITION[name]
    best = getattr(fitted.coefficients, name)
    if name == "c":
        return float((frame.lower, frame.upper)[side][FLOOR])
    reach = best * _REACH[name] ** (1 if side else -1)
    if name in ("b_S", "b_N", "b_D"):
        return float(np.clip(reach, frame.lower[position], frame.upper[position]))
    return reach


def _between(name: str, start: float, end: float, fractions: np.ndarray) -> np.ndarray:
    """Returns points between two values: evenly for c, which may be 0, else evenly in the log."""
    if name == "c":
        return start + fractions * (end - start)
    return np.exp(np.log(start) + fractions * (np.log(end) - np.log(start)))


def _curve(name: str, low: float, best: float, high: float) -> np.ndarray:
    steps = np.arange(1, _SIDE_POINTS + 1) / _SIDE_POINTS
    left, right = _between(name, best, low, steps)[::-1], _between(name, best, high, steps)
    return np.concatenate([left, [best], right])


def _refit(fitted: Fit, asked: list[tuple[str, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Minimises with one coefficient fixed a row; returns relative rises and variables."""
    recipe, frame = fitted.recipe, fitted.frame
    # A fixed a_D can have two valleys, one of a small b_D and one of a large, so it is tried twice.
    twice = [row for row, (name, _) in enumerate(asked) if name == "a_D"]
    starts = np.tile(fitted.variables, (len(asked) + len(twice), 1))
    starts[len(asked) :] = _without_floor(fitted.variables)
    rows = problem(frame, starts)
    for row, (name, value) in enumerate([*asked, *(asked[row] for row in twice)]):
        _fix(rows, row, name, value, fitted)
    solved = minimise(frame, rows, recipe.residual, recipe.delta)
    chosen = np.arange(len(asked))
    for second, row in enumerate(twice, start=len(asked)):
        if solved.objective[second] < solved.objective[row]:
            chosen[row] = second
    # Exact data have a minimum of rounding errors; those are not to be divided by.
    minimum = max(fitted.objective, 1e-12 * recipe.delta**2)
    rises = (solved.objective[chosen] - fitted.objective) / minimum
    return rises, solved.variables[chosen]


def _without_floor(variables: np.ndarray) -> np.ndarray:
    """Returns the start of the other valley that a fixed a_D can have: a slow data term for c."""
    start = variables.copy()
    start[LOG_E] = np.log(np.exp(variables[LOG_E]) + variables[FLOOR])
    start[FLOOR], start[B_D] = 0.0, 0.25 * variables[B_D]
    return start


def _fix(rows: Problem, row: int, name: str, value: float, fitted: Fit) -> None:
    """Fixes a coefficient; a_S, c_S and a_D refer to N = 1 or D = 1 and tie two variables."""
    position, frame = _POSITION[name], fitted.frame
    fixed = value
    if name in ("a_S", "c_S"):
        fixed = np.log(value)
        rows.tie[row, position, B_N] = -frame.log_reference_size
    if name == "a_D":
        fixed = 0.0
        rows.tie[row, position, B_D] = np.log(value) - frame.log_reference_data
    rows.start[row, position] = rows.lower[row, position] = rows.upper[row, position] = fixed
