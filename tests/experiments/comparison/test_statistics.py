"""Estimates, corrections and power against SciPy, closed forms and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.comparison import statistics as ours

RNG = np.random.default_rng(3)
BASELINE = list(4.7 + 0.01 * RNG.standard_normal(7))
METHOD = list(4.69 + 0.02 * RNG.standard_normal(7))


def test_paired_is_the_paired_t_test():
    estimate = ours.paired(BASELINE, METHOD)
    theirs = stats.ttest_rel(BASELINE, METHOD)
    assert 2 * estimate.p_at_most(0) == pytest.approx(theirs.pvalue, rel=1e-10)
    assert estimate.interval(0.95) == pytest.approx(tuple(theirs.confidence_interval(0.95)))


def test_unpaired_is_welch():
    estimate = ours.unpaired(BASELINE, METHOD[:4])
    theirs = stats.ttest_ind(BASELINE, METHOD[:4], equal_var=False)
    p = 2 * min(estimate.p_at_most(0), estimate.p_at_least(0))
    assert p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert estimate.df == pytest.approx(theirs.df)


def test_ties_show_nothing_and_exact_differences_everything():
    tie = ours.paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (tie.p_at_most(0), tie.p_at_least(0), tie.p_at_least(0.1)) == (1.0, 1.0, 0.0)
    shifted = ours.paired([1.5, 2.5, 3.5], [1.0, 2.0, 3.0])
    assert (shifted.p_at_most(0), shifted.p_at_least(0)) == (0.0, 1.0)


def test_holm_in_closed_form():
    assert ours.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert ours.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert ours.holm([0.02]) == [0.02]
    assert ours.holm([]) == []


def test_bootstrap_is_of_pairs_or_of_sides_and_repeats_itself():
    pairs = ours.bootstrap_interval([1.1, 2.1, 3.1], [1.0, 2.0, 3.0], True, 0.95)
    assert pairs == pytest.approx((0.1, 0.1))
    sides = ours.bootstrap_interval([1.1, 2.1, 3.1], [1.0, 2.0, 3.0], False, 0.95)
    assert sides[0] < -0.5 < 0.5 < sides[1]
    assert sides == ours.bootstrap_interval([1.1, 2.1, 3.1], [1.0, 2.0, 3.0], False, 0.95)


@pytest.mark.parametrize("is_paired", [True, False])
def test_seeds_needed_have_the_power_and_one_fewer_has_not(is_paired):
    n = ours.seeds_needed(1.0, 1.25, is_paired, 0.025, 0.9)
    assert ours.power(1.0, 1.25, n, is_paired, 0.025) >= 0.9
    assert ours.power(1.0, 1.25, n - 1, is_paired, 0.025) < 0.9


def test_power_is_what_simulation_finds():
    draws = RNG.normal(0.8, 1.0, (20_000, 12))
    t = draws.mean(axis=1) / draws.std(axis=1, ddof=1) * math.sqrt(12)
    found = (t > stats.t.ppf(0.975, 11)).mean()
    assert ours.power(0.8, 1.0, 12, True, 0.025) == pytest.approx(found, abs=0.015)


def test_an_uncertain_spread_needs_more_seeds():
    known = ours.seeds_needed(1.0, 1.5, True, 0.025, 0.9)
    assert known < ours.seeds_needed(1.0, 1.5, True, 0.025, 0.9, df=9)
    assert ours.seeds_needed(1.0, 1.5, True, 0.025, 0.9, df=2) > 2 * known
    assert ours.seeds_needed(1e-6, 1.0, True, 0.025, 0.9) == ours.MOST_SEEDS
    assert ours.seeds_needed(1.0, 0.0, True, 0.025, 0.9) == 3
