"""What is charged beyond the plan, and how sure it is."""

import pytest

from experiments.budget import Budget, Plan, Stage, StageCost, make_plan
from experiments.charge import charged


def plan_of_ten_seconds():
    return make_plan(Budget(10, "seconds"), [StageCost("train", 1.0, 0.1)])


def test_short_input_wait_is_reported_and_free():
    found = charged(plan_of_ten_seconds(), input_wait_s=0.1, train_s=10.0)
    assert found["input_wait_share"] == pytest.approx(0.01)
    assert found["rst_s"] == found["rst_planned_s"] == pytest.approx(10.0)
    assert found["rst_input_wait_s"] == 0 and not found["input_wait_charged"]


def test_long_input_wait_is_charged():
    """Steps that needed 8 s took 10: their 10 reference seconds count as 12.5."""
    found = charged(plan_of_ten_seconds(), input_wait_s=2.0, train_s=10.0)
    assert found["rst_s"] == pytest.approx(12.5)
    assert found["rst_planned_s"] == pytest.approx(10.0)
    assert found["rst_input_wait_s"] == pytest.approx(2.5) and found["input_wait_charged"]


def test_interval_adds_up_over_programs_and_leaves_out_what_is_free():
    programs = {
        "train": {"calls_per_step": 1.0, "seconds": 0.1, "low": 0.09, "high": 0.12, "how": "a"},
        "hessian": {"calls_per_step": 0.1, "seconds": 0.2, "low": 0.1, "high": 0.3, "how": "b"},
        "forward": {"calls_per_step": 2.0, "seconds": 9.0, "low": 9.0, "high": 9.0, "free": True},
    }
    plan = Plan((Stage("train", 0.0, 1.0, 0, 50, 0.12, programs),), before_s=1.0)
    found = charged(plan, 0.0, 10.0)
    assert found["rst_s"] == pytest.approx(1 + 50 * 0.12)
    assert found["rst_interval_s"] == pytest.approx(
        [1 + 50 * (0.09 + 0.1 * 0.1), 1 + 50 * (0.12 + 0.1 * 0.3)]
    )
    assert found["rst_how"][:2] == ["train/train: a", "train/hessian: b"]
