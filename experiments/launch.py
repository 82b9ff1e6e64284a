"""`python -m experiments.launch --exp=NAME`: runs one named experiment."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence

from absl import flags

from experiments import registry
from experiments.budget import parse_budget
from experiments.config import SCALES, Experiment, to_json
from experiments.overrides import apply_overrides
from models.allocator import keep_freed_memory
from models.errors import UserError

# Exit codes beside 0: bad input or a failed run, and stopped by a signal with everything saved.
EXIT_ERROR = 2
EXIT_INTERRUPTED = 75

_EXP = flags.DEFINE_string("exp", None, "Name of the experiment; --list shows all.")
_SCALE = flags.DEFINE_enum("scale", "demo", SCALES, "demo: minutes on a CPU; paper: as published.")
_BUDGET = flags.DEFINE_string("budget", None, "What training may cost: 90s, 6h or 2000steps.")
_SEED = flags.DEFINE_integer("seed", 0, "Decides every random draw of the run.")
_WORKDIR = flags.DEFINE_string("workdir", "runs", "Folder of all runs.")
_REFERENCE = flags.DEFINE_string("reference", "here", "Device in whose seconds a budget counts.")
_SET = flags.DEFINE_multi_string("set", [], "path=value: replaces one field; may be repeated.")
_LIST = flags.DEFINE_bool("list", False, "Shows every experiment and ends.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Shows the configuration and ends.")
_FORCE = flags.DEFINE_bool("force", False, "Runs anew where a run stands already.")


def experiment_from_flags() -> Experiment:
    """The experiment that the command line asks for, checked."""
    if _EXP.value is None:
        raise UserError("--exp=NAME is missing; --list shows all experiments.")
    experiment = registry.resolve(_EXP.value, _SCALE.value)
    experiment = dataclasses.replace(
        experiment, seed=_SEED.value, budget=_BUDGET.value or experiment.budget
    )
    for assignment in _SET.value:
        for flag in ("seed", "budget"):
            if assignment.startswith(f"{flag}="):
                raise UserError(f"--set {assignment}: use --{assignment}.")
        for fixed in ("name", "scale"):
            if assignment.startswith(f"{fixed}="):
                raise UserError(f"--set {assignment}: {fixed} follows from --exp and --scale.")
    experiment = apply_overrides(experiment, _SET.value)
    experiment.check()
    return experiment


def print_experiments() -> None:
    """One line for each registered experiment: its name and what it is."""
    experiments = registry.all_experiments()
    width = max(len(name) for name in experiments)
    for name, function in experiments.items():
        print(f"{name:<{width}}  {(function.__doc__ or '').strip().splitlines()[0]}")


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    if _LIST.value:
        print_experiments()
        return 0
    experiment = experiment_from_flags()
    if _DRY_RUN.value:
        print(json.dumps(to_json(experiment), indent=2))
        budget = parse_budget(experiment.budget)
        print(f"budget: {budget.amount:g} {budget.unit}", file=sys.stderr)
        return 0
    # Before jax, which is needed only from here on, starts its threads.
    keep_freed_memory()
    from experiments.run import run_experiment

    return run_experiment(experiment, _WORKDIR.value, _REFERENCE.value, _FORCE.value)


def run_main(main_function: Callable[[Sequence[str]], int]) -> None:
    """Runs a command: errors meant for the user become one or two lines and exit code 2."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        argv = flags.FLAGS(sys.argv, known_only=False)
        sys.exit(main_function(argv))
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    run_main(main)
