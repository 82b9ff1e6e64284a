"""Makes the runs of a study one after the other: skips finished ones, takes up stopped ones."""

import pathlib
from collections.abc import Callable, Sequence

import jax
from rich.table import Table

from experiments.against_scratch import against_scratch
from experiments.clock import Clock
from experiments.config import Experiment
from experiments.display import make_console
from experiments.run import EXIT_INTERRUPTED, run_experiment
from experiments.run_folder import RunFolder, read_json
from experiments.study import Study, describe, describe_pruning
from models.errors import UserError

# Exit code where a point failed.
EXIT_FAILED = 2


def run_study(
    study: Study,
    points: Sequence[int],
    workdir: str,
    reference: str,
    force: bool,
    account: str = "rst",
    run: Callable[..., int] = run_experiment,
) -> int:
    """Makes the given points (numbers from 1) of a study in this process; returns the exit code.

    A point that is done already is skipped unless `force`; a point that fails with an error meant
    for users is named at the end, and the others are made all the same. Where a signal stops a run,
    the study stops too, and the same command goes on from there.
    """
    console = make_console()
    failed: dict[int, str] = {}
    for place, number in enumerate(points, 1):
        experiment = study.runs[number - 1]
        where = f"point {number} ({place} of {len(points)}): {describe(experiment)}"
        if _summary(experiment, workdir) and not force:
            console.print(f"{where}: done already", markup=False)
            continue
        console.print(where, markup=False)
        # What the process did before is not this run's start.
        clock = Clock(since_process_start=place == 1)
        try:
            code = run(
                experiment, workdir, reference, force, account, clock=clock, show_summary=False
            )
        except UserError as error:
            failed[number] = str(error)
            console.print(f"point {number} failed: {error}", markup=False)
            continue
        finally:
            # The next point has other shapes: its programs would only pile up on these.
            jax.clear_caches()
        if code == EXIT_INTERRUPTED:
            return code
        console.print(f"point {number}: {_outcome(experiment, workdir)}", markup=False)
    console.print(_table(study, points, workdir))
    made = [(study.runs[n - 1], _summary(study.runs[n - 1], workdir) or {}) for n in points]
    if (comparison := against_scratch(made)) is not None:
        console.print(comparison)
    for number, text in failed.items():
        console.print(f"point {number} failed: {text}", markup=False)
    return EXIT_FAILED if failed else 0


def _table(study: Study, points: Sequence[int], workdir: str) -> Table:
    """What each point has come to."""
    table = Table(title=study.name)
    for column in ("point", "run", "pruned", "budget", "seed", "steps", "loss", "status"):
        right = column in ("point", "budget", "seed", "steps", "loss")
        table.add_column(column, justify="right" if right else "left", no_wrap=True)
    for number in points:
        experiment = study.runs[number - 1]
        summary = _summary(experiment, workdir) or {}
        loss = summary.get("final", {}).get("nll")
        table.add_row(
            str(number),
            experiment.name.removeprefix(f"{study.name}/"),
            describe_pruning(experiment),
            experiment.budget,
            str(experiment.seed),
            f"{summary['steps']:,}" if "steps" in summary else "",
            "" if loss is None else f"{loss:.4f}",
            summary.get("status", "not done"),
        )
    return table


def _outcome(experiment: Experiment, workdir: str) -> str:
    summary = _summary(experiment, workdir) or {}
    loss = summary.get("final", {}).get("nll")
    text = "" if loss is None else f"validation loss {loss:.4f}, "
    return f"{text}in {RunFolder(pathlib.Path(workdir), experiment).path}"


def _summary(experiment: Experiment, workdir: str) -> dict | None:
    return read_json(RunFolder(pathlib.Path(workdir), experiment).path / "summary.json")
