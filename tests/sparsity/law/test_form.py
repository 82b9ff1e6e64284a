"""The published figures, table by table, from the published coefficients."""

import numpy as np
import pytest

from sparsity.law.form import equivalent_size, loss
from sparsity.law.optimal import chinchilla_multiple, sparsity_at_multiple
from sparsity.law.published import PUBLISHED

VIT, T5 = PUBLISHED["vit_jft"].coefficients, PUBLISHED["t5_c4"].coefficients
SPARSITIES = (0.25, 0.5, 0.75, 0.875)


@pytest.mark.parametrize(
    ("law", "printed"),
    [
        (VIT, (2.94e2, 0.821, 4.68e2, 0.392, 2.37e8, 0.890, 4.517)),
        (T5, (1.68e1, 0.722, 4.50e1, 0.245, 6.90e8, 0.203, 0.651)),
    ],
)
def test_released_coefficients_round_to_the_printed_ones(law, printed):
    for value, shown in zip(law, printed, strict=True):
        digits = 3 if shown < 4.5 or shown > 4.6 else 4
        assert float(f"{value:.{digits - 1}e}") == pytest.approx(shown, rel=1e-9)


def test_loss_of_the_held_out_run():
    # T5, 75 % sparse, 48 layers-worth of 1024 wide, half a million steps of 65,536 tokens.
    predicted = loss(T5, 0.75, 48 * 12 * 1024**2, 5e5 * 65_536)
    assert predicted == pytest.approx(1.46830, abs=1e-5)


@pytest.mark.parametrize(
    ("law", "expected"),
    [(VIT, (1.596, 2.172, 2.634, 2.957, 3.469)), (T5, (1.586, 2.157, 2.630, 2.981, 3.643))],
)
def test_equivalent_sizes(law, expected):
    sparsity = np.array([0.5, 0.75, 0.875, 0.9375, 1.0])
    np.testing.assert_allclose(equivalent_size(law, sparsity), expected, atol=6e-4)


@pytest.mark.parametrize(
    ("law", "accounting", "expected", "tolerance"),
    [
        (VIT, "computed", (2.21, 4.82, 18.3, 69.2), 0.005),
        (VIT, "skipped", (0.75, 1.68, 6.56, 25.4), 0.005),
        (T5, "computed", (11.2, 71.1, 1.7e3, 4e4), 0.02),
        (T5, "skipped", (0.17, 2.46, 160, 7e3), 0.02),
    ],
)
def test_chinchilla_multiples(law, accounting, expected, tolerance):
    found = chinchilla_multiple(law, np.array(SPARSITIES), accounting)
    np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize(
    ("law", "multiple", "computed", "skipped"),
    [(VIT, 1.0, 0.0, 0.35), (T5, 1.0, 0.0, 0.425), (VIT, 2.0, 0.21, 0.54), (T5, 2.0, 0.0, 0.48)],
)
def test_best_sparsity_at_multiples_of_the_dense_optimum(law, multiple, computed, skipped):
    assert sparsity_at_multiple(law, multiple, "computed") == pytest.approx(computed, abs=0.005)
    assert sparsity_at_multiple(law, multiple, "skipped") == pytest.approx(skipped, abs=0.005)


def test_equivalent_size_reaches_the_same_loss():
    size, data = 3e7, 5e9
    dense = loss(VIT, 0.0, size * equivalent_size(VIT, 0.75), data)
    assert dense == pytest.approx(loss(VIT, 0.75, size, data), rel=1e-12)
