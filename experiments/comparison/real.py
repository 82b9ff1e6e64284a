"""Real runs for the self-test: the smallest experiment, through the loop, under many seeds."""

import dataclasses
import pathlib
import random
from collections.abc import Sequence

import numpy as np

from experiments import registry
from experiments.comparison.compare import Options, compare
from experiments.comparison.runs import Curve, Run, read_runs
from experiments.comparison.verdict import Kind
from experiments.overrides import apply_overrides
from models.errors import UserError

_EXPERIMENT = "vit_baseline"
_BUDGETS = ("160steps", "120steps")
_SETTINGS = (
    "train.batch_size=32",
    "train.num_evaluations=8",
    "train.num_checkpoints=1",
    "train.profile_steps=5",
    "mesh.data=1",
)
_GROUP = 5  # seeds of one side


def make_runs(seeds: int, workdir: pathlib.Path) -> None:
    """Trains `seeds` seeds at two budgets; those that are there already are not trained again."""
    from experiments.run import run_experiment

    if seeds < 2 * _GROUP:
        raise UserError(f"--real {seeds}: at least {2 * _GROUP}, for two groups of {_GROUP}.")
    for seed in range(seeds):
        for budget in _BUDGETS:
            experiment = dataclasses.replace(
                registry.resolve(_EXPERIMENT, "demo"), seed=seed, budget=budget
            )
            experiment = apply_overrides(experiment, list(_SETTINGS))
            experiment.check()
            pattern = f"{_EXPERIMENT}/demo-{budget}-s{seed}-*/summary.json"
            if not list(workdir.glob(pattern)):
                run_experiment(experiment, str(workdir), "here", force=False)


def resample(workdir: pathlib.Path, repetitions: int) -> list[tuple[str, str, str, str, str, str]]:
    """Draws two groups of seeds again and again: alike, and with one of them shifted."""
    runs, _ = read_runs([workdir])
    seeds = sorted({run.seed for run in runs})
    spread = float(np.std([run.final_loss for run in runs if run.steps == _steps(runs)], ddof=1))
    rows = []
    for what, shift in (
        ("real runs, nothing", 0.0),
        (f"real runs, loss lower by {3 * spread:.3f}, 3 standard deviations", 3 * spread),
        (f"real runs, loss higher by {3 * spread:.3f}", -3 * spread),
    ):
        kinds = dict.fromkeys(Kind, 0)
        for draw in range(repetitions):
            order = random.Random(draw).sample(seeds, len(seeds))
            kinds[_look(runs, order[:_GROUP], order[_GROUP : 2 * _GROUP], shift)] += 1
        shares = [f"{100 * kinds[kind] / repetitions:.1f} %" for kind in Kind]
        rows.append((what, shares[0], shares[1], shares[2], shares[3], str(_GROUP)))
    return rows


def _steps(runs: Sequence[Run]) -> int:
    return max(run.steps for run in runs)


def _look(runs: Sequence[Run], first: list[int], second: list[int], shift: float) -> Kind:
    """The verdict on one group against the other; the shifted one is told apart by its name."""
    compared = [run for run in runs if run.seed in first]
    compared += [
        _renamed(run, shift) for run in runs if run.seed in second and run.steps == _steps(runs)
    ]
    options = Options(baseline=_EXPERIMENT, bootstrap=False)
    (block,) = compare(compared, options=options).blocks
    (result,) = block.results
    return result.verdict.kind


def _renamed(run: Run, shift: float) -> Run:
    curve = run.validation
    moved = Curve(curve.step, curve.rst_s, curve.loss - shift)
    return dataclasses.replace(
        run, exp="shifted", final_loss=run.final_loss - shift, validation=moved
    )
