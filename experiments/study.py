"""Studies: several runs under one name, made one after the other and taken up where they stopped.

A module registers one with `@study`, as it registers an experiment:

    from experiments.registry import study
    from experiments.study import Study

    @study
    def study_widths(scale: str) -> Study:
        return Study(name="study_widths", runs=tuple(_width(scale, dim) for dim in (64, 128)))
"""

import dataclasses
import re
from collections.abc import Sequence

from experiments.config import Experiment, config_hash
from experiments.overrides import NotInThisConfig, apply_overrides
from models.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """Runs that belong together, in the order in which they are made.

    The name of a run, which no experiment needs to be registered under, decides its folder and with
    which runs it is compared; it may have parts, as in study_widths/64.
    """

    # The name it is registered under.
    name: str
    # Its points, numbered from 1.
    runs: tuple[Experiment, ...]


def adjust(
    study: Study, *, seed: int | None, budget: str | None, assignments: Sequence[str]
) -> Study:
    """Returns the study with seed, budget and `path=value` settings applied to its runs, checked.

    A run without the group of a setting (pruning of a dense one) stays as it is.

    Raises:
      UserError: no run has such a field, a value that does not fit, or two runs become the same.
    """
    runs = [
        dataclasses.replace(
            run, seed=run.seed if seed is None else seed, budget=budget or run.budget
        )
        for run in study.runs
    ]
    taken: list[list[str]] = [[] for _ in runs]
    for assignment in assignments:
        refused: list[NotInThisConfig] = []
        for run, ours in zip(runs, taken, strict=True):
            try:
                apply_overrides(run, [*ours, assignment])
            except NotInThisConfig as error:
                refused.append(error)
            else:
                ours.append(assignment)
        if len(refused) == len(runs):
            raise refused[0]
    runs = [apply_overrides(run, ours) for run, ours in zip(runs, taken, strict=True)]
    first_with: dict[tuple[str, ...], int] = {}
    for number, run in enumerate(runs, 1):
        run.check()
        key = (run.name, run.budget, str(run.seed), config_hash(run))
        if key in first_with:
            raise UserError(
                f"{study.name}: points {first_with[key]} and {number} are the same run with these "
                "settings; pick points by --points, or leave out what the study varies."
            )
        first_with[key] = number
    return dataclasses.replace(study, runs=tuple(runs))


def parse_points(text: str, count: int) -> list[int]:
    """Reads `1,4-7` as the points [1, 4, 5, 6, 7] of a study with `count` points, in order.

    Raises:
      UserError: not such a list, or a number that the study does not have.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if not match:
            raise UserError(f"--points={text}: write numbers and ranges, as in --points=1,4-7.")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= count:
            raise UserError(f"--points={text}: {part.strip()} is not within 1 to {count}.")
        chosen |= set(range(first, last + 1))
    return sorted(chosen)


def describe(run: Experiment) -> str:
    """One line for a point: its name, its budget, and what is pruned from it."""
    return f"{run.name}  {run.budget}  seed {run.seed}  {describe_pruning(run)}".rstrip()


def describe_pruning(run: Experiment) -> str:
    """`75 % unstructured`, `50 % 2:4`, or nothing for a dense run."""
    if run.pruning is None or run.pruning.rule == "none":
        return ""
    return f"{100 * run.pruning.sparsity:g} % {run.pruning.pattern}"
