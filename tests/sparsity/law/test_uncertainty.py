"""Intervals that cover the truth, profiles that are minima, weaknesses that are named."""

import numpy as np
import pytest

from sparsity.law.bootstrap import bootstrap, resample_weights
from sparsity.law.estimate import Estimate, percentiles, short
from sparsity.law.figures import FIGURES
from sparsity.law.fit import errors_of, fit, objective_of, recipe_for
from sparsity.law.identification import at_edge, explain, weaknesses
from sparsity.law.patterns import pattern_worths
from sparsity.law.profile import profiles
from sparsity.law.read_csv import read_csv
from tests.sparsity.law.planted import LAW, PUBLISHED_POINTS, RECIPE, needs_published_points, points

WORTH = {"1:4": (0.75, 1.5), "2:4": (0.5, 1.55)}


def test_resamples_keep_the_number_of_points_of_each_kind():
    given = points(worth=WORTH)
    weights = resample_weights(given, 50, seed=(0, 1))
    for kind in np.unique(given.pattern):
        members = given.pattern == kind
        np.testing.assert_array_equal(weights[:, members].sum(axis=1), members.sum())
    np.testing.assert_array_equal(weights, resample_weights(given, 50, seed=(0, 1)))
    assert (weights != resample_weights(given, 50, seed=(1, 1))).any()


def test_intervals_cover_the_planted_law():
    figures = ("equivalent_50", "equivalent_75", "skipped_50", "computed_50")
    truth = {name: FIGURES[name].value(LAW) for name in figures}
    covered, values, widths = [], [], []
    for seed in range(10):
        fitted = fit(points(noise=0.004, seed=seed), RECIPE)
        resampled = bootstrap(fitted, 60).coefficients
        for name in figures:
            figure = FIGURES[name].value
            estimate = Estimate.of(figure, fitted.coefficients, resampled)
            covered.append(estimate.low <= truth[name] <= estimate.high)
            values.append(np.log(estimate.value))
            widths.append(np.log(estimate.high / estimate.low))
    # 90 % intervals; 40 figures of 10 draws are far from independent.
    assert np.mean(covered) >= 0.7
    # They are as wide as estimates really scatter (a 90 % interval is 3.29 deviations wide).
    scatter = np.array(values).reshape(10, -1).std(axis=0, ddof=1)
    ratio = np.median(np.array(widths).reshape(10, -1), axis=0) / (3.29 * scatter)
    assert (ratio > 0.5).all() and (ratio < 2.0).all()


def test_percentiles_of_infinities():
    values = np.concatenate([np.arange(95.0), np.full(10, np.inf)])
    low, median, high = percentiles(values)
    assert (low, median, high) == (4.0, 52.0, np.inf) or low in (4.0, 5.0)
    assert high == np.inf and not np.isnan(median)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (4.816, "4.82"), (71.1, "71.1"), (1677.2, "1677"), (2.374e8, "2.37e8"),
     (np.inf, "∞"), (8.09e-4, "8.09e-4"), (-0.25, "-0.250")],
)  # fmt: skip
def test_numbers_for_people(value, text):
    assert short(value) == text


def test_sparse_runs_that_are_worse_than_dense_ones_are_said_to_be():
    # A non-zero weight of a sparse run is worth half of a dense one, which the form cannot say.
    given = points(LAW._replace(a_S=-10.0, b_S=1.0), noise=0.004)
    fitted = fit(given, RECIPE)
    (warning,) = at_edge(given, fitted.coefficients)
    assert "bounds, not estimates" in warning
    usual = points(noise=0.004)
    assert at_edge(usual, fit(usual, RECIPE).coefficients) == []


def test_profile_ends_are_where_the_refitted_objective_has_risen():
    fitted = fit(points(noise=0.01), RECIPE)
    for profile in profiles(fitted, flat=0.02):
        assert profile.low < profile.best < profile.high
        assert not (profile.open_low or profile.open_high)
        # The refits do hold the coefficient at the value asked for, tied ones too.
        np.testing.assert_allclose(
            getattr(profile.coefficients, profile.name), profile.values, rtol=1e-9
        )
        np.testing.assert_allclose(profile.excess[[0, -1]], 0.02, atol=2e-3)
        assert profile.excess.min() == pytest.approx(0.0, abs=1e-6)
        ends = [type(LAW)(*(float(v[i]) for v in profile.coefficients)) for i in (0, -1)]
        for end, excess in zip(ends, profile.excess[[0, -1]], strict=True):
            rise = objective_of(end, fitted) / fitted.objective - 1
            assert rise == pytest.approx(excess, abs=1e-8)
            # The refit is a minimum: going back to the other coefficients of the best fit is worse.
            moved = fitted.coefficients._replace(**{profile.name: getattr(end, profile.name)})
            assert objective_of(moved, fitted) > objective_of(end, fitted)


@needs_published_points
def test_published_t5_points_leave_b_D_open():
    given = read_csv(PUBLISHED_POINTS, {})[1]
    found = {p.name: p for p in profiles(fit(given, recipe_for(given.name, None, None)), 0.02)}
    # Two valleys: a search from the optimum alone ends at 1.2e9.
    assert found["a_D"].high == pytest.approx(4.0e9, rel=0.02)
    assert (found["b_D"].low, found["b_D"].high) == pytest.approx((0.112, 0.569), rel=0.01)
    multiples = FIGURES["computed_50"].value(found["b_D"].coefficients)
    assert multiples.min() < 8 and multiples.max() > 1800
    assert {w.coefficient for w in weaknesses(list(found.values()))} == {"a_D", "b_D", "c"}


def test_spread_out_data_leave_no_weakness():
    assert weaknesses(profiles(fit(points(noise=0.002), RECIPE), 0.02)) == []
    assert explain([], 0.02) == []


def test_a_narrow_range_of_data_is_named_with_what_hangs_on_it():
    narrow = points(noise=0.01, data=(1.6e10, 3.3e10, 6.6e10))
    weak = weaknesses(profiles(fit(narrow, RECIPE), 0.02))
    assert {"b_D", "c"} <= {weakness.coefficient for weakness in weak}
    told = " ".join(explain(weak, 0.02))
    assert "barely identified" in told and "b_D (" in told and "at most 2 % worse" in told
    assert "Chinchilla multiple for 50 %, zeros computed" in told
    assert "dense weights worth one non-zero at 50 %" not in told
    assert "Do not quote one number" in told


def test_pattern_multipliers_are_estimated_with_the_law():
    fitted = fit(points(worth=WORTH), RECIPE)
    np.testing.assert_allclose(fitted.coefficients, LAW, rtol=1e-4)
    for name, (_, multiplier) in WORTH.items():
        assert fitted.multipliers[name] == pytest.approx(multiplier, rel=1e-5)
    errors = errors_of(fitted.coefficients, fitted.points, fitted.multipliers)
    assert errors.points == 72 and errors.max_relative < 1e-6


def test_pattern_verdicts():
    # 2:4 as good as unstructured 50 % of the planted law, 1:4 clearly worse than 75 %.
    equal = FIGURES["equivalent_50"].value(LAW)
    worth = {"2:4": (0.5, equal), "1:4": (0.75, 1.2)}
    fitted = fit(points(noise=0.004, worth=worth), RECIPE)
    found = {row.pattern: row for row in pattern_worths(fitted, bootstrap(fitted, 60))}
    assert found["2:4"].verdict == "not told apart from unstructured 50 %"
    assert found["1:4"].verdict == "worse than unstructured 75 %"
    assert found["1:4"].multiplier.low < 1.2 < found["1:4"].multiplier.high
    assert found["1:4"].runs == 12
