"""Experiments and studies by name: functions of the scale, registered under their own names."""

import importlib
import os
import sys
from collections.abc import Callable, Iterable

from experiments.config import SCALES, Experiment
from experiments.study import Study
from models.errors import UserError, did_you_mean

ExperimentFn = Callable[[str], Experiment]
StudyFn = Callable[[str], Study]

# Modules that register experiments when they are imported; none of them imports jax.
_MODULES = (
    "experiments.t5",
    "experiments.bert",
    "experiments.vit",
    "experiments.sparse",
    "experiments.sparse_studies",
    "experiments.ntng",
    "experiments.ntng_studies",
    "experiments.fff_bert",
    "experiments.fff_vit",
)

_EXPERIMENTS: dict[str, ExperimentFn] = {}
_STUDIES: dict[str, StudyFn] = {}


def experiment(function: ExperimentFn) -> ExperimentFn:
    """Registers a function scale → Experiment under its own name.

    Its docstring says in its first line what it is, then the command, the hardware, the expected
    time and the expected score.
    """
    _EXPERIMENTS[_free_name(function)] = function
    return function


def study(function: StudyFn) -> StudyFn:
    """Registers a function scale → Study under its own name; its docstring as of an experiment."""
    _STUDIES[_free_name(function)] = function
    return function


def import_modules(names: Iterable[str]) -> None:
    """Imports a user's modules, which register what they define.

    Raises:
      UserError: there is no such module, or it needs one that is not installed.
    """
    # A console script, other than `python -m`, does not look into the current folder.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise UserError(
                    f"--import={name}: it imports {error.name}, which is not installed."
                ) from error
            dotted = name.removesuffix(".py").replace("/", ".")
            hint = f" Write {dotted}." if dotted != name else ""
            raise UserError(
                f"--import={name}: no module {error.name} in {os.getcwd()} or on PYTHONPATH.{hint}"
            ) from None


def all_experiments() -> dict[str, ExperimentFn]:
    """Every registered experiment, in the order of registration."""
    _import_own()
    return dict(_EXPERIMENTS)


def all_studies() -> dict[str, StudyFn]:
    """Every registered study, in the order of registration."""
    _import_own()
    return dict(_STUDIES)


def resolve(name: str, scale: str) -> Experiment:
    """The experiment of this name at this scale; raises UserError for an unknown one."""
    known = all_experiments()
    if name in all_studies():
        raise UserError(f"--exp {name}: a study of several runs, where one experiment is needed.")
    _check(name, scale, known)
    return known[name](scale)


def resolve_study(name: str, scale: str) -> Study:
    """The study of this name at this scale, or an experiment as a study of one run.

    Raises UserError for an unknown one.
    """
    _check(name, scale, all_experiments() | all_studies())
    if name in _STUDIES:
        return _STUDIES[name](scale)
    return Study(name=name, runs=(_EXPERIMENTS[name](scale),))


def _check(name: str, scale: str, known: Iterable[str]) -> None:
    if name not in known:
        raise UserError(
            f"--exp {name}: no such experiment.{did_you_mean(name, known)} --list shows all."
        )
    if scale not in SCALES:
        raise UserError(f"--scale {scale}: not one of {', '.join(SCALES)}.")


def _free_name(function: Callable[[str], Experiment | Study]) -> str:
    name = function.__name__
    if name in _EXPERIMENTS or name in _STUDIES:
        raise ValueError(f"experiment {name} is registered twice")
    return name


def _import_own() -> None:
    for module in _MODULES:
        importlib.import_module(module)
