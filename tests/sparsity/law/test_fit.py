"""Planted laws come back; the published points give the known minima from every start."""

import numpy as np
import pytest

from sparsity.law.fit import errors_of, fit, objective_of, recipe_for
from sparsity.law.holdout import guesses, hold_out
from sparsity.law.published import PUBLISHED
from sparsity.law.read_csv import read_csv
from tests.sparsity.law.planted import (
    LAW,
    PUBLISHED_POINTS,
    RECIPE,
    needs_published_points,
    points,
)


@pytest.mark.parametrize(("residual", "delta"), [("log", 0.001), ("raw", 0.01)])
def test_planted_law_is_recovered_from_every_start(residual, delta):
    recipe = recipe_for("planted", residual, delta, starts=64)
    fitted = fit(points(), recipe)
    np.testing.assert_allclose(fitted.coefficients, LAW, rtol=1e-4)
    assert fitted.agreeing == 64
    assert fitted.at_bound == ()


def test_scale_of_sizes_and_data_does_not_matter():
    given = points(noise=0.01)
    fitted = fit(given, RECIPE)
    scaled = type(given)(**{**vars(given), "size": 1e3 * given.size, "data": 1e-3 * given.data})
    again = fit(scaled, RECIPE)
    assert again.objective == pytest.approx(fitted.objective, rel=1e-9)
    assert again.coefficients.b_N == pytest.approx(fitted.coefficients.b_N, rel=1e-5)
    assert again.coefficients.a_D == pytest.approx(1e-3 * fitted.coefficients.a_D, rel=1e-5)


def test_a_negative_floor_is_not_fitted():
    below = points(LAW._replace(c=-0.3))
    fitted = fit(below, RECIPE)
    assert fitted.coefficients.c == 0.0
    assert fitted.at_bound == ("c",)


def test_errors_are_those_of_the_chosen_points():
    given = points()
    given.loss[5] *= 1.1
    errors = errors_of(LAW, given, {})
    assert errors.points == 48
    assert errors.max_relative == pytest.approx(1 - 1 / 1.1)
    assert errors.mean_relative == pytest.approx((1 - 1 / 1.1) / 48)
    assert errors.rmse == pytest.approx(0.1 / 1.1 * given.loss[5] / np.sqrt(48))
    only = np.arange(48) != 5
    assert errors_of(LAW, given, {}, only).max_relative == pytest.approx(0.0, abs=1e-12)


def test_held_out_points_are_not_seen():
    given = points()
    given.loss[given.data == given.data.max()] *= 1.2
    held = hold_out(fit(given, RECIPE))["largest D"]
    # The rest is exact but has two values of D left, so only the size of the error is known.
    assert held.points == 16
    assert held.mean_relative > 0.1


def test_a_guess_out_of_sample_is_called_one():
    (told,) = guesses(points())
    assert told.startswith("without the largest D two values of D are left")
    assert guesses(points(data=(1e9, 4e9, 1.6e10, 6.4e10))) == []


def test_too_little_left_to_hold_out():
    given = points(data=(1e9, 8e9))
    assert hold_out(fit(given, RECIPE))["largest D"] is None


@needs_published_points
def test_published_points():
    fits = {
        given.name: fit(given, recipe_for(given.name, None, None, starts=100))
        for given in read_csv(PUBLISHED_POINTS, {})
    }
    vit, t5 = fits["vit_jft"], fits["t5_c4"]
    assert vit.objective == pytest.approx(4.9290878e-4, rel=1e-6)
    assert t5.objective == pytest.approx(4.8801e-6, rel=1e-4)
    assert vit.agreeing == t5.agreeing == 100
    assert max(vit.gradient, t5.gradient) < 1e-8
    # ViT: the published coefficients are the minimiser. T5: they are not.
    np.testing.assert_allclose(vit.coefficients, PUBLISHED["vit_jft"].coefficients, rtol=1e-3)
    assert objective_of(PUBLISHED["vit_jft"].coefficients, vit) == pytest.approx(
        vit.objective, rel=1e-6
    )
    assert objective_of(PUBLISHED["t5_c4"].coefficients, t5) == pytest.approx(7.603605e-6, rel=1e-6)
    expected = (10.71, 1.345, 41.62, 0.2317, 6.769e8, 0.3846, 0.8304)
    np.testing.assert_allclose(t5.coefficients, expected, rtol=1e-3)
    held = {(name, axis): e for name, f in fits.items() for axis, e in hold_out(f).items()}
    for key, mean, largest in (
        (("vit_jft", "largest D"), 0.0107, 0.037),
        (("vit_jft", "largest N"), 0.0107, 0.026),
        (("t5_c4", "largest N"), 0.0091, 0.018),
    ):
        assert held[key].mean_relative == pytest.approx(mean, abs=1e-4)
        assert held[key].max_relative == pytest.approx(largest, abs=1e-3)
