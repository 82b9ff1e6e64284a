"""The traced window holds steps only: nothing that happens between steps."""

import pytest

from experiments.budget import Plan, Stage
from experiments.config import TrainConfig
from experiments.train import choose_window


def plan_of(*stages: tuple[int, float]) -> Plan:
    """Stages of so many steps, each of so many seconds."""
    planned, first = [], 0
    for index, (steps, seconds) in enumerate(stages):
        share = 1 / len(stages)
        planned.append(
            Stage(f"s{index}", index * share, (index + 1) * share, first, steps, seconds)
        )
        first += steps
    return Plan(tuple(planned))


CFG = TrainConfig(batch_size=8, profile_steps=20, warmup_steps=5)


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (set(), (5, 25)),
        ({25, 50}, (5, 25)),  # the window ends before what its last step is followed by
        ({15, 30, 60}, (31, 51)),  # the first gap that is long enough
        ({12, 24, 36, 48, 60}, (13, 24)),  # else the longest
        ({5}, (6, 26)),  # an event of the first step is over when the window starts
    ],
)
def test_no_event_lies_inside(events, expected):
    first, last = choose_window(plan_of((60, 1.0)), 0, CFG, events)
    assert (first, last) == expected
    assert not {step for step in events if first <= step < last}


def test_in_the_stage_that_costs_most():
    assert choose_window(plan_of((100, 1.0), (60, 2.0)), 0, CFG, {160}) == (105, 125)


def test_after_the_step_from_which_a_run_goes_on():
    assert choose_window(plan_of((60, 1.0)), 30, CFG, {60}) == (35, 55)


@pytest.mark.parametrize(("first", "measured"), [(54, False), (0, True)])
def test_past_the_end_where_there_is_nothing_to_measure(first, measured):
    window = choose_window(plan_of((60, 1.0)), first, CFG, set(), measured)
    assert window == (61, 61)
