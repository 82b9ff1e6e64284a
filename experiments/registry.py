"""Experiments by name: a function of the scale, registered under its own name."""

import importlib
from collections.abc import Callable

from experiments.config import SCALES, Experiment
from models.errors import UserError, did_you_mean

ExperimentFn = Callable[[str], Experiment]

# Modules that register experiments when they are imported; none of them imports jax.
_MODULES = ("experiments.t5", "experiments.bert", "experiments.vit")

_EXPERIMENTS: dict[str, ExperimentFn] = {}


def experiment(function: ExperimentFn) -> ExperimentFn:
    """Registers a function scale → Experiment under its own name.

    Its docstring says in its first line what it is, then the command, the hardware, the expected
    time and the expected score.
    """
    name = function.__name__
    if name in _EXPERIMENTS:
        raise ValueError(f"experiment {name} is registered twice")
    _EXPERIMENTS[name] = function
    return function


def all_experiments() -> dict[str, ExperimentFn]:
    """Every registered experiment, in the order of registration."""
    for module in _MODULES:
        importlib.import_module(module)
    return dict(_EXPERIMENTS)


def resolve(name: str, scale: str) -> Experiment:
    """The experiment of this name at this scale; raises UserError for an unknown one."""
    known = all_experiments()
    if name not in known:
        raise UserError(
            f"--exp {name}: no such experiment.{did_you_mean(name, known)} --list shows all."
        )
    if scale not in SCALES:
        raise UserError(f"--scale {scale}: not one of {', '.join(SCALES)}.")
    return known[name](scale)
