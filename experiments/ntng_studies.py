"""Studies of the efficient-training methods: who beats the baseline, and how each was tuned."""

import dataclasses

from experiments.config import Experiment
from experiments.ntng import BASELINES, CHALLENGERS, STUDIED, challenge
from experiments.registry import study
from experiments.study import Study

# Budgets in the ratio 1:2:4, and how many seeds each is run with.
_BUDGETS = {"demo": ("6s", "12s", "24s"), "paper": ("6h", "12h", "24h")}
_SEEDS = 3

# Peak learning rates that are tried for each, as multiples of the one that stands in ntng.py (in
# bert.py and t5.py for the baselines): the same number for the baseline as for every challenger.
_MULTIPLES = (0.2, 0.45, 1.0, 2.2, 5.0)
_TUNING_BUDGETS = {"demo": "12s", "paper": "6h"}


def _all(family: str, scale: str) -> list[Experiment]:
    return [BASELINES[family](scale), *(challenge(family, name, scale) for name in STUDIED)]


def _compare(family: str, scale: str) -> Study:
    """Methods × budgets × seeds; a seed's runs stand together, so that any prefix is a fair one."""
    runs = [
        dataclasses.replace(run, budget=budget, seed=seed)
        for seed in range(_SEEDS)
        for budget in _BUDGETS[scale]
        for run in _all(family, scale)
    ]
    return Study(name=f"study_ntng_{family}", runs=tuple(_brief(run) for run in runs))


def _tune(family: str, name: str, scale: str) -> Study:
    """One challenger, or the baseline, at each of the learning rates.

    The criterion is the validation loss; in the paper it is the training loss, which batch
    selection changes the meaning of.
    """
    base = BASELINES[family](scale) if name == "baseline" else challenge(family, name, scale)
    peak = base.optimizer.peak_learning_rate
    runs = [
        dataclasses.replace(
            base,
            name=f"tune_{family}_{name}/{multiple:g}",
            budget=_TUNING_BUDGETS[scale],
            # Another seed than the studies', so that no figure there is one that was chosen.
            seed=100,
            optimizer=dataclasses.replace(base.optimizer, peak_learning_rate=multiple * peak),
        )
        for multiple in _MULTIPLES
    ]
    return Study(name=f"tune_{family}_{name}", runs=tuple(_brief(run) for run in runs))


def _brief(run: Experiment) -> Experiment:
    """A demo run of seconds: evaluated and saved at its end only."""
    if run.scale != "demo":
        return run
    train = dataclasses.replace(run.train, num_evaluations=2, num_checkpoints=1, keep_checkpoints=1)
    return dataclasses.replace(run, train=train)


@study
def study_ntng_bert(scale: str) -> Study:
    """Nine methods and the baseline on BERT, three budgets, three seeds.

    Command: python -m experiments.launch --exp=study_ntng_bert
    Hardware: demo any CPU; paper one accelerator with 24 GB or more.
    Time: demo half an hour; paper 90 runs of 6, 12 and 24 hours of the reference device.
    Score: python -m experiments.compare runs; the paper finds that gains vanish with the budget.
    """
    return _compare("bert", scale)


@study
def study_ntng_t5(scale: str) -> Study:
    """Nine methods and the baseline on T5, three budgets, three seeds.

    Command: python -m experiments.launch --exp=study_ntng_t5
    Hardware: demo any CPU; paper one accelerator with 80 GB.
    Time: demo half an hour; paper 90 runs of 6, 12 and 24 hours of the reference device.
    Score: python -m experiments.compare runs; the paper finds that gains vanish with the budget.
    """
    return _compare("t5", scale)


def _register(family: str, name: str) -> None:
    def make(scale: str) -> Study:
        return _tune(family, name, scale)

    make.__name__ = f"tune_{family}_{name}"
    make.__doc__ = f"""{family}_{name} at {len(_MULTIPLES)} learning rates, as many as each other.

    Command: python -m experiments.launch --exp=tune_{family}_{name}
    Hardware: that of {family}_{name}.
    Time: demo a minute; paper {len(_MULTIPLES)} runs of 6 hours of the reference device.
    Score: the lowest validation loss; what it chose stands in experiments/ntng.py.
    """
    study(make)


for _family in BASELINES:
    for _name in ("baseline", *CHALLENGERS):
        _register(_family, _name)
