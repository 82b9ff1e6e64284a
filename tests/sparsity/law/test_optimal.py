"""Optimal sparsity against brute force; cost of training against the integrated schedule."""

import numpy as np
import pytest

from models.errors import UserError
from sparsity.law.accounting import ACCOUNTINGS, training_multiple
from sparsity.law.contours import contours
from sparsity.law.decision import decide
from sparsity.law.form import Coefficients, loss
from sparsity.law.optimal import (
    chinchilla_multiple,
    dense_optimal_compute,
    dense_optimal_data,
    dense_optimal_size,
    optimal_sparsity,
)
from sparsity.law.published import PUBLISHED
from tests.sparsity.law.planted import LAW

LAWS = [PUBLISHED["vit_jft"].coefficients, PUBLISHED["t5_c4"].coefficients, LAW]


def brute_force_sparsity(law, size, compute, accounting):
    """Minimises the loss over a fine grid of densities, then over a finer one around the best."""
    density = np.geomspace(1e-7, 1.0, 20_001)
    for _ in range(3):
        sparsity = 1.0 - density
        data = compute / (6.0 * size * training_multiple(sparsity, accounting))
        best = int(np.argmin(loss(law, sparsity, size, data)))
        around = density[max(best - 1, 0)], density[min(best + 1, len(density) - 1)]
        density = np.linspace(*around, 20_001)
    return 1.0 - density[len(density) // 2] if around[1] < 1.0 else 1.0 - density[best]


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@pytest.mark.parametrize("law", LAWS)
def test_optimal_sparsity_is_the_minimum(law, accounting):
    for size in (1e6, 3e8):
        for multiple in (0.3, 1.5, 14.0, 400.0):
            compute = multiple * dense_optimal_compute(law, size)
            found = float(optimal_sparsity(law, size, compute, accounting))
            expected = brute_force_sparsity(law, size, compute, accounting)
            assert found == pytest.approx(expected, abs=2e-5), (size, multiple)


def test_closed_form_agrees_with_the_multiple():
    for law in LAWS:
        size = 2e7
        compute = chinchilla_multiple(law, 0.6, "computed") * dense_optimal_compute(law, size)
        assert optimal_sparsity(law, size, compute, "computed") == pytest.approx(0.6, abs=1e-12)


def test_optimal_sparsity_of_resamples_is_that_of_each():
    stacked = Coefficients(*(np.array(values) for values in zip(*LAWS, strict=True)))
    for accounting in ACCOUNTINGS:
        together = optimal_sparsity(stacked, 1e8, 1e20, accounting)
        alone = [optimal_sparsity(law, 1e8, 1e20, accounting) for law in LAWS]
        np.testing.assert_allclose(together, alone, atol=1e-14)


def test_training_multiple_is_the_integral_of_the_cubic_schedule():
    time = (np.arange(1_000_000) + 0.5) / 1_000_000
    ramp = np.clip((time - 0.25) / 0.5, 0.0, 1.0)
    for sparsity in (0.25, 0.5, 0.75, 0.875):
        density = 1.0 - sparsity * (1.0 - (1.0 - ramp) ** 3)
        expected = density.mean() / (1.0 - sparsity)
        assert training_multiple(sparsity, "skipped") == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(
        [training_multiple(s, "computed") for s in (0.5, 0.75, 0.875)], (2, 4, 8)
    )


def test_unknown_accounting_is_refused():
    with pytest.raises(UserError, match="Did you mean skipped"):
        training_multiple(0.5, "skiped")


@pytest.mark.parametrize("law", LAWS)
def test_dense_optimum_is_the_minimum_over_sizes(law):
    size = 5e7
    compute = dense_optimal_compute(law, size)
    sizes = size * np.geomspace(0.5, 2.0, 2001)
    losses = loss(law, 0.0, sizes, compute / (6.0 * sizes))
    assert sizes[np.argmin(losses)] == pytest.approx(size, rel=1e-3)
    assert dense_optimal_size(law, compute) == pytest.approx(size, rel=1e-9)


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@pytest.mark.parametrize("multiple", [0.5, 14.0])
def test_decision_figures_hold_in_the_law(accounting, multiple):
    for law in LAWS:
        size = 7e9
        compute = multiple * dense_optimal_compute(law, size)
        found = decide(law, size, compute, accounting)
        cost = training_multiple(found.sparsity, accounting)
        data = compute / (6.0 * size * cost)
        reached = loss(law, found.sparsity, size, data)
        dense = loss(law, 0.0, size, compute / (6.0 * size))
        assert found.multiple == pytest.approx(multiple, rel=1e-9)
        assert found.loss_gained == pytest.approx(dense - reached, abs=1e-12)
        assert found.loss_gained >= -1e-12
        equal = found.equal_data_size
        assert loss(law, 0.0, equal, data) == pytest.approx(reached, rel=1e-12)
        assert found.equal_data_cost == pytest.approx(compute / (6.0 * equal * data), rel=1e-9)
        if np.isfinite(found.equal_cost_size):
            same_cost = loss(law, 0.0, found.equal_cost_size, compute / 6 / found.equal_cost_size)
            assert same_cost == pytest.approx(reached, rel=1e-9)
            assert found.weights_saved == pytest.approx(1 - size / found.equal_cost_size)
        else:
            best = dense_optimal_size(law, compute)
            assert loss(law, 0.0, best, compute / (6.0 * best)) > reached
        longest = loss(law, 0.0, size, found.dense_cost * compute / (6.0 * size))
        if np.isfinite(found.dense_cost):
            assert longest == pytest.approx(reached, rel=1e-9)
        else:
            assert longest > reached


def test_contours_are_parallel_lines_where_the_sparsity_is_best():
    resampled = Coefficients(*(np.array([value, 1.1 * value]) for value in LAW))
    lines = contours(LAW, resampled, (1e6, 1e9))
    dense = dense_optimal_data(LAW, lines[0].size) * 6 * lines[0].size
    for line in lines:
        ratio = line.compute / dense
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
        found = optimal_sparsity(LAW, line.size[7], line.compute[7], line.accounting)
        expected = line.sparsity if line.sparsity else found
        assert found == pytest.approx(expected, abs=1e-9)
        assert (line.low <= line.compute * (1 + 1e-12)).all()
        assert (line.low < line.high).all()
    assert all(np.isnan(line.low).all() for line in contours(LAW, None, (1e6, 1e9)))
