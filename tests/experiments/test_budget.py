"""Budgets and plans: exact steps, progress that ends at 1, charges that add up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.budget import Budget, StageCost, make_plan, parse_budget
from models.errors import UserError


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("90s", Budget(90, "seconds")),
        ("1.5h", Budget(5400, "seconds")),
        ("30min", Budget(1800, "seconds")),
        ("2000steps", Budget(2000, "steps")),
    ],
)
def test_budgets_are_read(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("90", "the unit is missing; write 90s"),
        ("fast", "not a number with a unit"),
        ("9d", "unknown unit d"),
        ("0s", "must be above 0"),
        ("2.5steps", "whole"),
        ("-3s", "not a number"),
    ],
)
def test_bad_budgets_are_explained(text, part):
    with pytest.raises(UserError, match=part):
        parse_budget(text)


def test_seconds_buy_whole_steps():
    plan = make_plan(Budget(10, "seconds"), [StageCost("train", 1.0, 0.3)])
    assert plan.total_steps == 33
    assert plan.rst_s(33) == pytest.approx(9.9)


def test_published_stacking_counts():
    """Layer stacking of No Train No Gain: 4/8/16 layers at 12.5 % and 30 % of 6, 12 and 24 h.

    Seconds per update from the published table of micro-batches, 12 to an update; the published
    counts are those of one budget counter, which carries rests over from stage to stage, as ours.
    """
    for hours, updates in ((6, 11705), (12, 23411), (24, 46823)):
        plan = make_plan(
            Budget(hours * 3600, "seconds"),
            [
                StageCost("4", 0.125, 12 * 0.06508),
                StageCost("8", 0.30, 12 * 0.1186),
                StageCost("16", 1.0, 12 * 0.2253),
            ],
        )
        assert plan.total_steps == updates
        assert hours * 3600 - 12 * 0.2253 < plan.rst_s(updates) <= hours * 3600


@given(
    steps=st.integers(3, 5000),
    shares=st.lists(st.floats(0.05, 0.9), min_size=0, max_size=3, unique=True),
    seconds=st.lists(st.floats(0.01, 3.0), min_size=4, max_size=4),
    entering=st.lists(st.floats(0.0, 30.0), min_size=4, max_size=4),
)
def test_progress_never_falls_and_ends_at_one(steps, shares, seconds, entering):
    ends = [*sorted(shares), 1.0]
    stages = [StageCost(str(i), end, seconds[i], entering[i]) for i, end in enumerate(ends)]
    try:
        plan = make_plan(Budget(steps, "steps"), stages)
    except UserError:
        return
    assert plan.total_steps == steps
    values = [plan.progress(step) for step in range(steps + 1)]
    assert values[0] == 0.0 and values[-1] == 1.0
    assert all(later > sooner for sooner, later in itertools.pairwise(values))
    assert plan.rst_s(steps) == pytest.approx(
        sum(
            stage.steps * cost.step_s + cost.entering_s
            for stage, cost in zip(plan.stages, stages, strict=True)
        )
    )


def test_entering_a_stage_leaves_it_fewer_steps():
    stages = [StageCost("a", 0.5, 1.0), StageCost("b", 1.0, 2.0, entering_s=100.0)]
    plan = make_plan(Budget(1000, "seconds"), stages)
    assert [stage.steps for stage in plan.stages] == [500, 200]
    assert plan.rst_s(700) == pytest.approx(1000) and plan.rst_s(500) == pytest.approx(500)
    # The same shares of the budget where it is given in steps.
    assert [s.steps for s in make_plan(Budget(700, "steps"), stages).stages] == [500, 200]


def test_budget_below_one_step_is_an_error():
    with pytest.raises(UserError, match="no step fits"):
        make_plan(Budget(1, "seconds"), [StageCost("train", 1.0, 2.0)])
