"""What a run is charged: the planned reference seconds, and the input that it waited for."""

from typing import Any

from experiments.budget import Plan

# Waiting for input up to this share of the training time is not charged.
FREE_INPUT_WAIT = 0.01


def charged(plan: Plan, input_wait_s: float, train_s: float) -> dict[str, Any]:
    """The charges of a finished run, as summary.json keeps them.

    Steps are planned before the first one and charged by their programs. A loop that waited for its
    input took 1 / (1 − share) of the time that its programs needed, so above the free share it is
    charged that much more than was planned, and so more than was granted: such a run had better be
    repeated with input that keeps up. Growing from one stage to the next is planned too, and so
    charged by the steps that follow it. Compilation, measuring, evaluation, checkpoints, profiling
    and logging are reported and not charged.

    Args:
      plan: of the whole run.
      input_wait_s: wall seconds that the loop waited for batches.
      train_s: wall seconds of the account "train".
    """
    planned_s = plan.rst_s(plan.total_steps)
    share = input_wait_s / train_s
    wait_s = planned_s * share / (1 - share) if share > FREE_INPUT_WAIT else 0.0
    low, high, hows = _interval(plan)
    return {
        "rst_s": planned_s + wait_s,
        "rst_planned_s": planned_s,
        "rst_input_wait_s": wait_s,
        # How far off the planned seconds can be, by the conversion to the reference.
        "rst_interval_s": [low, high],
        "rst_how": hows,
        "input_wait_share": share,
        "input_wait_charged": wait_s > 0,
    }


def _interval(plan: Plan) -> tuple[float, float, list[str]]:
    """Lower and upper bound of the planned seconds, and how each program's were found."""
    low = high = plan.before_s
    hows: dict[str, None] = {}
    for stage in plan.stages:
        if not stage.programs:
            low += stage.steps * stage.seconds_per_step
            high += stage.steps * stage.seconds_per_step
        for kind, program in stage.programs.items():
            hows[f"{stage.name}/{kind}: {program.get('how', 'measured on this device')}"] = None
            if program.get("free"):
                continue
            calls = stage.steps * program["calls_per_step"]
            low += calls * program.get("low", program["seconds"])
            high += calls * program.get("high", program["seconds"])
    return low, high, list(hows)
