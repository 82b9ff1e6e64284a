"""Real runs for the self-test: the smallest experiment, through the loop, under many seeds."""

import dataclasses
import pathlib
import random
from collections.abc import Sequence

from experiments import registry
from experiments.comparison.compare import Options, compare
from experiments.comparison.curves import Curve
from experiments.comparison.runs import Run, read_runs
from experiments.comparison.verdict import FEWEST_SEEDS, Kind
from experiments.overrides import apply_overrides
from models.errors import UserError

_EXPERIMENT = "vit_baseline"
# The budget that is compared at, 5 % more of it, and one that tells the slope of the loss.
_STEPS, _MORE, _FEWER = 160, 168, 120
_SETTINGS = (
    "train.batch_size=32",
    "train.num_evaluations=8",
    "train.num_checkpoints=1",
    "train.profile_steps=5",
    "mesh.data=1",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is planted in real runs: a method that makes other steps than the baseline."""

    what: str
    baseline_steps: int
    method_steps: int


CASES = (
    Case("real runs, nothing, other seeds", _STEPS, _STEPS),
    Case("real runs, a step 5 % faster", _STEPS, _MORE),
    Case("real runs, a step 5 % slower", _MORE, _STEPS),
)


def make_runs(seeds: int, workdir: pathlib.Path) -> None:
    """Trains so many seeds at three budgets; what is there already is not trained again."""
    from experiments.clock import Clock
    from experiments.run import run_experiment

    if seeds < 2 * FEWEST_SEEDS:
        raise UserError(f"--real {seeds}: at least {2 * FEWEST_SEEDS}, for two groups.")
    for seed in range(seeds):
        for steps in (_STEPS, _MORE, _FEWER):
            experiment = dataclasses.replace(
                registry.resolve(_EXPERIMENT, "demo"), seed=seed, budget=f"{steps}steps"
            )
            experiment = apply_overrides(experiment, list(_SETTINGS))
            experiment.check()
            pattern = f"{_EXPERIMENT}/demo-{steps}steps-s{seed}-*/summary.json"
            if not list(workdir.glob(pattern)):
                # What the process did before is not this run's start.
                clock = Clock(since_process_start=False)
                run_experiment(
                    experiment, str(workdir), "here", False, clock=clock, show_summary=False
                )


def resample(case: Case, workdir: pathlib.Path, repetitions: int) -> tuple[dict[Kind, int], int]:
    """Verdicts on half of the seeds, drawn again and again, and how many seeds that is.

    Where nothing is planted the other half stands for the method, unpaired: a run against itself
    would be equal to the last bit. Otherwise the same seeds do, paired.
    """
    runs, _ = read_runs([workdir])
    seeds = sorted({run.seed for run in runs})
    group = len(seeds) // 2
    kinds = dict.fromkeys(Kind, 0)
    for draw in range(repetitions):
        order = random.Random(draw).sample(seeds, 2 * group)
        ours = order[group:] if case.method_steps == case.baseline_steps else order[:group]
        kinds[_look(case, runs, order[:group], ours)] += 1
    return kinds, group


def _look(case: Case, runs: Sequence[Run], theirs: list[int], ours: list[int]) -> Kind:
    def some(seeds: list[int], steps: int) -> list[Run]:
        return [run for run in runs if run.seed in seeds and run.steps == steps]

    baseline = some(theirs, case.baseline_steps)
    method = [_planted(run, case, baseline[0]) for run in some(ours, case.method_steps)]
    compared = baseline + some(theirs, _FEWER) + method
    blocks = compare(compared, options=Options(baseline=_EXPERIMENT, bootstrap=False)).blocks
    (result,) = (result for block in blocks for result in block.results)
    return result.verdict.kind


def _planted(run: Run, case: Case, baseline: Run) -> Run:
    """The run as a method whose steps take as much less time as it makes more of them."""
    ratio = case.baseline_steps / case.method_steps
    curve = run.validation
    return dataclasses.replace(
        run,
        exp="planted",
        conditions=baseline.conditions,
        validation=Curve(curve.step, curve.rst_s * ratio, curve.loss),
    )
