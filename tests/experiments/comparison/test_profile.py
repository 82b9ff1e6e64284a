"""The scorer against closed forms: ties, misses, one workload, one seed, a bystander."""

import math

import numpy as np
import pytest

from experiments.comparison import profile
from experiments.comparison.curves import Curve
from models.errors import UserError


def curve(losses, seconds=None):
    seconds = np.arange(1.0, len(losses) + 1) if seconds is None else np.array(seconds)
    return Curve(np.arange(len(losses)), seconds, np.array(losses, float))


def test_time_to_loss_between_evaluations():
    assert profile.time_to_loss(curve([5, 4, 3]), 3.5) == pytest.approx(2.5)
    assert profile.time_to_loss(curve([5, 4, 3]), 3.0) == 3.0
    assert profile.time_to_loss(curve([5, 4, 3]), 6.0) == 1.0
    assert math.isinf(profile.time_to_loss(curve([5, 4, 3]), 2.9))


def test_the_first_time_counts_by_the_clock_not_by_the_evaluation():
    assert profile.time_to_loss(curve([5, 3, 4, 2], [10, 20, 30, 40]), 3.0) == 20


def test_nothing_counts_after_a_loss_that_is_not_finite():
    assert math.isinf(profile.time_to_loss(curve([5, math.nan, 3]), 4.0))
    assert profile.time_to_loss(curve([5, 4, math.inf]), 4.0) == 2.0


def test_a_miss_is_infinite_in_the_median():
    assert profile.median_time([1.0, 2.0, math.inf]) == 2.0
    assert math.isinf(profile.median_time([1.0, math.inf]))
    assert profile.median_time([1.0, 2.0]) == 1.5
    assert profile.median_time([7.0]) == 7.0


def test_score_is_the_integral_of_the_profile():
    values = [0.5, 1.0, 3.9, math.inf, 7.0]
    tau = np.linspace(0, profile.WORST_RATIO, 400_001)
    area = np.trapezoid(profile.profile(values, tau), tau) / profile.WORST_RATIO
    assert profile.score(values) == pytest.approx(area, abs=1e-5)
    assert profile.score(values) == pytest.approx((0.875 + 0.75 + 0.025) / 5)


def test_one_workload_ties_and_misses():
    assert profile.score([1.0]) == 0.75
    assert profile.score([math.inf]) == 0.0
    assert profile.score([4.0]) == 0.0
    assert profile.geometric_speedup([0.5, 2.0]) == pytest.approx(1.0)
    assert profile.geometric_speedup([0.5, math.inf]) is None


def test_a_workload_of_the_set_that_was_not_run_is_a_miss():
    reference = {"a": profile.Target(4.0, 10.0), "b": profile.Target(3.0, 20.0)}
    assert profile.ratios({"a": 5.0, "c": 1.0}, reference) == {"a": 0.5, "b": math.inf}


def test_reference_set_survives_its_file(tmp_path):
    reference = {"a": profile.Target(4.0, 10.0)}
    profile.write_reference_set(tmp_path / "set.json", reference)
    assert profile.read_reference_set(tmp_path / "set.json") == reference
    (tmp_path / "bad.json").write_text('{"targets": {"a": {"loss": 4, "seconds": 0}}}')
    with pytest.raises(UserError, match="no finite time above 0"):
        profile.read_reference_set(tmp_path / "bad.json")
    (tmp_path / "worse.json").write_text("[]")
    with pytest.raises(UserError, match="not a reference set"):
        profile.read_reference_set(tmp_path / "worse.json")
