"""What a reader must know beside a verdict: warnings about runs and about pairs of arms."""

from collections.abc import Iterator
from typing import Any

from experiments.comparison.arms import Arm


def arm_warnings(arm: Arm) -> list[str]:
    """Everything about the runs of one arm that could make its figures mislead."""
    warnings = []
    if arm.diverged:
        listed = ", ".join(f"{run.seed} (step {run.diverged_at:,})" for run in arm.diverged)
        warnings.append(f"{arm.label}, {arm.conditions.budget}: diverged under seeds {listed}")
    if len({run.steps for run in arm.runs}) > 1:
        counts = ", ".join(f"seed {run.seed} {run.steps:,}" for run in arm.runs)
        warnings.append(
            f"{arm.label}: its runs were planned from different measurements and differ in steps "
            f"({counts})"
        )
    for run in arm.runs:
        share = run.summary.get("input_wait_share")
        if isinstance(share, int | float) and share > 0.01:
            warnings.append(
                f"{arm.label}: seed {run.seed} waited for input {100 * share:.1f} % of its time"
            )
    free = sorted({name for run in arm.runs for name in _free(run.config)})
    if free:
        warnings.append(f"{arm.label}: declared free, and so not charged: {', '.join(free)}")
    if arm.runs[0].config.get("init"):
        warnings.append(
            f"{arm.label}: starts from trained weights, whose training is not part of its budget"
        )
    return warnings


def budget_warnings(baseline: Arm) -> list[str]:
    """What the unit of the budget leaves open."""
    if baseline.runs[0].budget_is_time:
        return []
    return [
        "The budget is a number of steps, which says nothing about time: a method with dearer "
        "steps was given more of it"
    ]


def pair_warnings(baseline: Arm, method: Arm) -> list[str]:
    """Differences between two arms that are allowed but weigh on what they show."""
    warnings = []
    for name, what in (("versions", "package versions"), ("git_commit", "commits of the source")):
        mine = {_text(run.config.get(name)) for run in method.runs}
        theirs = {_text(run.config.get(name)) for run in baseline.runs}
        if mine != theirs:
            warnings.append(f"{method.label} and {baseline.label} ran with different {what}")
    mine_trials, their_trials = tuning_trials(method), tuning_trials(baseline)
    if mine_trials is not None and their_trials is not None and mine_trials != their_trials:
        warnings.append(
            f"unequal tuning: {mine_trials} trials for {method.label}, {their_trials} for "
            f"{baseline.label}; part of the difference may be tuning"
        )
    accounts = [
        {str(run.config.get("account", "rst")) for run in arm.runs} for arm in (baseline, method)
    ]
    if accounts[0] != accounts[1]:
        warnings.append(
            f"{method.label} was charged by {', '.join(sorted(accounts[1]))}, {baseline.label} by "
            f"{', '.join(sorted(accounts[0]))}"
        )
    return warnings


def tuning_trials(arm: Arm) -> int | None:
    """How many settings were tried before this one was chosen; None where runs do not say."""
    for run in arm.runs:
        for source in (run.summary, run.config, run.config["experiment"]):
            if isinstance(source.get("tuning_trials"), int):
                return source["tuning_trials"]
    return None


def _free(config: dict[str, Any]) -> Iterator[str]:
    for part in ("plan", "before"):
        yield from declared_free(config.get(part), part)


def declared_free(plan: Any, name: str = "") -> Iterator[str]:
    """Names of the parts of a plan that are declared free."""
    if isinstance(plan, dict):
        if plan.get("free") is True:
            yield str(plan.get("name") or name)
        for key, value in plan.items():
            yield from declared_free(value, key)
    elif isinstance(plan, list):
        for value in plan:
            yield from declared_free(value, name)


def _text(value: Any) -> str:
    return str(sorted(value.items())) if isinstance(value, dict) else str(value)
