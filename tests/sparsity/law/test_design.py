"""The next run: variances against repeated experiments on a planted law."""

import numpy as np
import pytest

from sparsity.law import solve
from sparsity.law.design import Design, candidate_runs
from sparsity.law.figures import FIGURES
from sparsity.law.fit import Recipe, fit
from sparsity.law.form import loss
from sparsity.law.points import Points
from sparsity.law.variables import frame_of, to_coefficients, to_variables
from tests.sparsity.law.planted import LAW, points

NOISE = 0.001
REPEATS = 128
FIGURE = FIGURES["computed_50"]
# Least squares, for which the linear theory is the textbook one.
RECIPE = Recipe(residual="log", delta=1.0, starts=64)
# A factor of four in D leaves b_D and c badly known, so that new runs can tell a lot.
NARROW = (4e9, 8e9, 1.6e10)


def with_runs(given: Points, runs) -> Points:
    """The points and the runs, all of them with the planted law's exact losses."""
    added = {
        "sparsity": np.array([run.sparsity for run in runs]),
        "size": np.array([run.size for run in runs]),
        "data": np.array([run.data for run in runs]),
        "pattern": np.full(len(runs), "unstructured"),
    }
    columns = {name: np.concatenate([getattr(given, name), added[name]]) for name in added}
    exact = loss(LAW, columns["sparsity"], columns["size"], columns["data"])
    return Points(**{**vars(given), **columns, "loss": exact})


def scatter(given: Points) -> float:
    """Standard deviation of the log figure over repeated noisy experiments at the same points."""
    frame = frame_of(given)
    noise = np.random.Generator(np.random.Philox(3)).normal(size=(REPEATS, len(given)))
    rows = solve.problem(frame, np.tile(to_variables(LAW, frame), (REPEATS, 1)))
    rows = rows._replace(target=given.loss * np.exp(NOISE * noise))
    solved = solve.minimise(frame, rows, RECIPE.residual, RECIPE.delta)
    return float(np.std(np.log(FIGURE.value(to_coefficients(solved.variables, frame)))))


@pytest.fixture(scope="module")
def design():
    return Design(fit(points(noise=NOISE, seed=4, data=NARROW), RECIPE), FIGURE)


@pytest.fixture(scope="module")
def candidates():
    return candidate_runs(
        np.array([0.0, 0.5, 0.875]),
        np.array([1e6, 6.4e7, 2.6e8]),
        np.array([1e9, 2.6e11]),
        "computed",
    )


def test_cost_of_candidates(candidates):
    for run in candidates:
        assert run.cost == pytest.approx(6 * run.size * run.data / (1 - run.sparsity))
    assert len(candidates) == 18


def test_spread_is_that_of_repeated_experiments(design, candidates):
    base = points(data=NARROW)
    before = scatter(base)
    assert design.spread([]) == pytest.approx(before, rel=0.15)
    real = [scatter(with_runs(base, [run] * 4)) for run in candidates]
    expected = [design.spread([run] * 4) for run in candidates]
    np.testing.assert_allclose(expected, real, rtol=0.2)
    chosen = int(np.argmin(expected))
    assert real[chosen] < 0.25 * before
    assert real[chosen] < 1.05 * min(real)


def test_plan_keeps_the_budget_and_beats_other_runs_of_that_cost(design, candidates):
    budget = 2 * 6 * 6.4e7 * 2.6e11
    plan = design.best_plan(candidates, budget, most=4)
    assert plan.cost <= budget
    assert plan.cost == pytest.approx(sum(run.cost for run in plan.runs))
    assert plan.spread_after < plan.spread_before
    assert plan.spread_after == pytest.approx(design.spread(list(plan.runs)))
    for run in candidates:
        if run.cost <= budget:
            assert plan.spread_after <= design.spread([run]) * (1 + 1e-9)


def test_d_optimal_plan_shrinks_the_volume(candidates):
    design = Design(fit(points(noise=NOISE, seed=4, data=NARROW), RECIPE), None)
    plan = design.best_plan(candidates, 1e22, most=2)
    assert plan.spread_after < plan.spread_before
    least = min(candidates, key=lambda run: design.spread([run]))
    assert design.spread([least]) < plan.spread_before
