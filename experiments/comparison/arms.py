"""Arms: runs that differ in nothing but their seed, and which of them may be compared."""

import dataclasses
import fnmatch
from collections.abc import Sequence
from typing import Any

from experiments.comparison.runs import Conditions, Run
from models.errors import UserError, did_you_mean

_MOST_DIFFERENCES = 3


@dataclasses.dataclass(frozen=True)
class Arm:
    """One configuration under one budget; its runs are in the order of their seeds."""

    label: str
    exp: str
    config_hash: str
    runs: tuple[Run, ...]

    @property
    def conditions(self) -> Conditions:
        """What every run agrees on; a diverged run may not say all of it."""
        merged = self.runs[0].conditions
        for run in self.runs[1:]:
            said = {k: v for k, v in dataclasses.asdict(run.conditions).items() if v is not None}
            merged = dataclasses.replace(merged, **said)
        return merged

    @property
    def diverged(self) -> list[Run]:
        return [run for run in self.runs if run.diverged_at is not None]


@dataclasses.dataclass(frozen=True)
class Refused:
    """An arm that is not compared, and in what it differs from the nearest baseline."""

    label: str
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.label} is not compared: {'; '.join(self.reasons)}"


@dataclasses.dataclass(frozen=True)
class Match:
    """A baseline, what may be compared with it, and the baseline itself at other budgets."""

    baseline: Arm
    methods: tuple[Arm, ...]
    other_budgets: tuple[Arm, ...]


def make_arms(runs: Sequence[Run]) -> list[Arm]:
    """Groups runs by experiment, configuration and conditions."""
    groups: list[list[Run]] = []
    for run in runs:
        for group in groups:
            first = group[0]
            same = (first.exp, first.config_hash) == (run.exp, run.config_hash)
            if same and not any(other.conditions.differences(run.conditions) for other in group):
                group.append(run)
                break
        else:
            groups.append([run])
    variants: dict[str, dict[str, Run]] = {}
    for group in sorted(groups, key=len, reverse=True):
        variants.setdefault(group[0].exp, {}).setdefault(group[0].config_hash, group[0])
    arms = []
    for group in groups:
        first = group[0]
        label = _label(first, list(variants[first.exp].values()))
        ordered = tuple(sorted(group, key=lambda run: run.seed))
        arms.append(Arm(label, first.exp, first.config_hash, ordered))
    return sorted(arms, key=lambda arm: (arm.conditions.scale, arm.runs[0].rst_s, arm.label))


def _label(run: Run, variants: list[Run]) -> str:
    """The experiment's name, with what sets it apart from its most frequent configuration."""
    if run.config_hash == variants[0].config_hash:
        return run.exp
    usual = _flat(variants[0].config["experiment"])
    own = _flat(run.config["experiment"])
    differing = [
        f"{path}={own.get(path)}"
        for path in sorted(usual.keys() | own.keys())
        if usual.get(path) != own.get(path) and path not in ("seed", "budget")
    ]
    if not differing:
        return f"{run.exp} @{run.config_hash}"
    more = len(differing) - _MOST_DIFFERENCES
    shown = ", ".join(differing[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
    return f"{run.exp} ({shown})"


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for name, inner in value.items():
            flat |= _flat(inner, f"{path}.{name}" if path else name)
        return flat
    return {} if value is None else {path: value}


def match(
    arms: Sequence[Arm], baseline: str | None, methods: Sequence[str] = ()
) -> tuple[list[Match], list[Refused]]:
    """Finds the baselines and what may be compared with each.

    Args:
      arms: all of them.
      baseline: an experiment's name, NAME@HASH for one of its configurations, or None for every
        experiment whose name ends in `_baseline`.
      methods: patterns of experiments to compare; all by default.

    Raises:
      UserError: no baseline, more than one configuration of it, or a method that was asked for by
        name differs in its conditions.
    """
    baselines = _baselines(arms, baseline)
    chosen = {id(arm) for arm in baselines}
    others = [arm for arm in arms if id(arm) not in chosen and _wanted(arm, methods)]
    for pattern in methods:
        if not any(_wanted(arm, [pattern]) for arm in others):
            names = sorted({arm.exp for arm in arms} - {arm.exp for arm in baselines})
            raise UserError(
                f"--methods {pattern}: no such runs.{did_you_mean(pattern, names)} "
                f"There are {', '.join(names) or 'none beside the baseline'}."
            )
    matched: dict[int, list[Arm]] = {id(arm): [] for arm in baselines}
    refused = []
    for arm in others:
        distances = [(base.conditions.differences(arm.conditions), base) for base in baselines]
        fits = [base for differences, base in distances if not differences]
        for base in fits:
            matched[id(base)].append(arm)
        if not fits:
            _, base = min(distances, key=lambda pair: len(pair[0]))
            reasons = tuple(
                f"{text} (of {base.label})" for text in arm.conditions.differences(base.conditions)
            )
            refused.append(Refused(arm.label, reasons))
    if refused and methods and not any(matched.values()):
        raise UserError(". ".join(str(one) for one in refused) + ".")
    return [
        Match(base, tuple(matched[id(base)]), tuple(_at_other_budgets(base, baselines)))
        for base in baselines
    ], refused


def _wanted(arm: Arm, patterns: Sequence[str]) -> bool:
    names = (arm.exp, arm.label, f"{arm.exp}@{arm.config_hash}")
    return not patterns or any(fnmatch.fnmatch(n, p) for n in names for p in patterns)


def _baselines(arms: Sequence[Arm], name: str | None) -> list[Arm]:
    known = sorted({arm.exp for arm in arms})
    if name is None:
        found = [arm for arm in arms if arm.exp.endswith("_baseline")]
        if not found:
            raise UserError(
                f"--baseline=NAME is missing, and no experiment here is called …_baseline. "
                f"There are {', '.join(known)}."
            )
    else:
        exp, _, digest = name.partition("@")
        found = [arm for arm in arms if arm.exp == exp and arm.config_hash.startswith(digest)]
        if not found:
            raise UserError(
                f"--baseline {name}: no such runs.{did_you_mean(name, known)} "
                f"There are {', '.join(known)}."
            )
    for index, arm in enumerate(found):
        for other in found[:index]:
            twice = arm.exp == other.exp and arm.config_hash != other.config_hash
            if twice and not arm.conditions.differences(other.conditions):
                raise UserError(
                    f"--baseline {arm.exp}: two configurations of it have runs, "
                    f"{other.exp}@{other.config_hash} ({other.label}) and "
                    f"{arm.exp}@{arm.config_hash} ({arm.label}); name one with its hash."
                )
    return found


def _at_other_budgets(base: Arm, baselines: Sequence[Arm]) -> list[Arm]:
    found = []
    for arm in baselines:
        same = (arm.exp, arm.config_hash) == (base.exp, base.config_hash)
        differences = base.conditions.differences(arm.conditions)
        if same and len(differences) == 1 and differences[0].startswith("budget:"):
            found.append(arm)
    return found


def shares_data_order(left: Arm, right: Arm) -> bool:
    """Whether equal seeds of the two arms read the same examples in the same order."""
    first, second = (arm.runs[0].config["experiment"] for arm in (left, right))
    batch = first["train"]["batch_size"] == second["train"]["batch_size"]
    return batch and first["data"] == second["data"]
