"""`python -m experiments.launch --exp=NAME`: runs one named experiment, or a study of several."""

import errno
import json
import os
import sys
from collections.abc import Callable, Sequence

from absl import flags

from experiments import registry
from experiments.budget import parse_budget
from experiments.command_help import help_text, shared_flags, show
from experiments.config import SCALES, Experiment, to_json
from experiments.study import Study, adjust, describe, parse_points
from models.allocator import keep_freed_memory
from models.errors import UserError

# Exit codes beside 0: bad input or a failed run, and stopped by a signal with everything saved.
EXIT_ERROR = 2
EXIT_INTERRUPTED = 75

# Which flags of this module say what is to be run, and which a job for a scheduler knows.
RUN_FLAGS = ("exp", "scale", "budget", "seed", "set", "import", "points")
JOB_FLAGS = (*RUN_FLAGS, "workdir", "reference", "account", "force", "track", "dry_run")

_EXP = flags.DEFINE_string("exp", None, "Name of the experiment or study; --list shows all.")
_SCALE = flags.DEFINE_enum("scale", "demo", SCALES, "demo: minutes on a CPU; paper: as published.")
_BUDGET = flags.DEFINE_string("budget", None, "What training may cost: 90s, 6h or 2000steps.")
_SEED = flags.DEFINE_integer("seed", None, "Decides every random draw of the run; 0 by default.")
_WORKDIR = flags.DEFINE_string("workdir", "runs", "Folder of all runs.")
_REFERENCE = flags.DEFINE_string("reference", "here", "Device in whose seconds a budget counts.")
_ACCOUNT = flags.DEFINE_enum(
    "account", "rst", ("rst", "wall"), "rst: seconds of the reference; wall: of this device."
)
_SET = flags.DEFINE_multi_string("set", [], "path=value: replaces one field; may be repeated.")
_LIST = flags.DEFINE_bool("list", False, "Shows every experiment and ends.")
_DRY_RUN = flags.DEFINE_bool("dry_run", False, "Shows the configuration and ends.")
_FORCE = flags.DEFINE_bool("force", False, "Runs anew where a run stands already.")
_POINTS = flags.DEFINE_string("points", None, "Points of a study to run, as in 1,4-7; else all.")
_TRACK = flags.DEFINE_list("track", [], "Trackers to write to beside TensorBoard: wandb, mlflow.")
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "host:port of process 0, where no cluster's environment says it."
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Processes of the run.")
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Number of this process, from 0.")
_JOIN_TIMEOUT_S = flags.DEFINE_integer("join_timeout_s", 300, "Wait for other processes this long.")
_CLUSTER = flags.DEFINE_bool("cluster", False, "Asks the cloud's metadata for other processes.")
_IMPORT = flags.DEFINE_multi_string(
    "import", [], "Module of yours that registers experiments or studies; may be repeated."
)


def experiment_from_flags() -> Experiment:
    """The one experiment that the command line asks for, checked."""
    if len(runs := runs_from_flags()) > 1:
        raise UserError(f"--exp {_EXP.value}: a study of {len(runs)} runs; pick one by --points.")
    return runs[0]


def runs_from_flags() -> list[Experiment]:
    """The runs that the command line asks for: one, or the points of a study; checked."""
    study = _study_from_flags()
    return [study.runs[number - 1] for number in _points_from_flags(study)]


def _study_from_flags() -> Study:
    if _EXP.value is None:
        raise UserError("--exp=NAME is missing; --list shows all experiments.")
    registry.import_modules(_IMPORT.value)
    for assignment in _SET.value:
        for flag in ("seed", "budget"):
            if assignment.startswith(f"{flag}="):
                raise UserError(f"--set {assignment}: use --{assignment}.")
        for fixed in ("name", "scale"):
            if assignment.startswith(f"{fixed}="):
                raise UserError(f"--set {assignment}: {fixed} follows from --exp and --scale.")
    study = registry.resolve_study(_EXP.value, _SCALE.value)
    return adjust(study, seed=_SEED.value, budget=_BUDGET.value, assignments=_SET.value)


def _points_from_flags(study: Study) -> list[int]:
    count = len(study.runs)
    if _POINTS.value is None:
        return list(range(1, count + 1))
    if study.name not in registry.all_studies():
        raise UserError(f"--points={_POINTS.value}: {study.name} is one run, not a study.")
    return parse_points(_POINTS.value, count)


def print_experiments() -> None:
    """One line for each registered experiment and study: its name and what it is."""
    registry.import_modules(_IMPORT.value)
    experiments = registry.all_experiments() | registry.all_studies()
    width = max(len(name) for name in experiments)
    lines = (
        f"{name:<{width}}  {(function.__doc__ or '').strip().splitlines()[0]}"
        for name, function in experiments.items()
    )
    show("\n".join(lines))


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    if _LIST.value:
        print_experiments()
        return 0
    study = _study_from_flags()
    points = _points_from_flags(study)
    if not _WORKDIR.value:
        raise UserError("--workdir is empty; write --workdir=FOLDER, or leave it out for runs.")
    if _DRY_RUN.value:
        _show_plan(study, points)
        return 0
    # Before jax, which is needed only from here on, starts its threads.
    keep_freed_memory()
    _join_and_track()
    where = (_WORKDIR.value, _REFERENCE.value, _FORCE.value, _ACCOUNT.value)
    if study.name in registry.all_studies():
        from experiments.run_study import run_study

        return run_study(study, points, *where)
    from experiments.run import run_experiment

    return run_experiment(study.runs[0], *where)


def _join_and_track() -> None:
    """Meets the other processes of the run, if there are any, and opens no device before."""
    from experiments import cluster, tracking

    tracking.check_trackers(_TRACK.value)
    if _TRACK.value:
        os.environ[tracking.VARIABLE] = ",".join(_TRACK.value)
    processes = cluster.Cluster(
        coordinator=_COORDINATOR.value,
        num_processes=_NUM_PROCESSES.value,
        process_id=_PROCESS_ID.value,
        timeout_s=_JOIN_TIMEOUT_S.value,
    )
    cluster.join(processes, always=_CLUSTER.value)


def _show_plan(study: Study, points: Sequence[int]) -> None:
    """Prints the configuration of one run, or a line for each of several."""
    if len(points) == 1:
        experiment = study.runs[points[0] - 1]
        print(json.dumps(to_json(experiment), indent=2))
        budget = parse_budget(experiment.budget)
        print(f"budget: {budget.amount:g} {budget.unit}", file=sys.stderr)
        if _REFERENCE.value != "here":
            _show_steps(experiment)
        return
    for number in points:
        print(f"{number:>4}  {describe(study.runs[number - 1])}")


def _show_steps(experiment: Experiment) -> None:
    """Prints the steps of every stage, where the reference has all its figures."""
    from experiments.reference import find_reference
    from experiments.table_plan import plan_by_table

    plan = plan_by_table(experiment, find_reference(_REFERENCE.value, _ACCOUNT.value))
    if plan is None:
        print("steps: known when this device has timed the programs", file=sys.stderr)
        return
    for stage in plan.stages:
        seconds = f"{stage.seconds_per_step:.4g} s of {_REFERENCE.value} each"
        print(f"stage {stage.name}: {stage.steps:,} steps, {seconds}", file=sys.stderr)


def run_main(
    main_function: Callable[[Sequence[str]], int], shared: Sequence[str] | None = ()
) -> None:
    """Runs a command: errors meant for the user become one or two lines and exit code 2.

    Args:
      main_function: the command; it gets what is left of the command line without flags.
      shared: names of this module's flags that the command reads; any other is an error. None is
        for this module's own command, which has all of them.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        if {"--help", "-help", "-h"} & set(sys.argv[1:]):
            show(help_text(sys.modules["__main__"].__doc__ or "", shared))
            sys.exit(0)
        argv = flags.FLAGS(sys.argv, known_only=False)
        for flag in shared_flags():
            if shared is not None and flag.name not in shared and flag.present:
                raise UserError(f"--{flag.name}: not a flag of this command; --help shows those.")
        sys.exit(main_function(argv))
    except (UserError, flags.Error) as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"{where}disk full. What was saved before is whole; make room, and give the same "
            "command again.",
            file=sys.stderr,
        )
        sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    run_main(main, shared=None)
