"""`python -m experiments.selftest`: false gains and found gains of the instrument itself."""

import json
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags
from rich.progress import Progress
from rich.table import Table

from experiments.launch import run_main
from models.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

_REPETITIONS = flags.DEFINE_integer("repetitions", 1000, "Simulated comparisons of each case.")
_ONLY = flags.DEFINE_list("only", [], "Words that the names of the cases must contain.")
_REAL = flags.DEFINE_integer("real", 0, "Also trains so many seeds for real, 10 s each.")
# Of experiments.launch: the folder of the real runs.
_WORKDIR = flags.FLAGS["workdir"]
_MARKDOWN = flags.DEFINE_bool("markdown", False, "Prints the table as the README shows it.")
_JSON = flags.DEFINE_string("json", None, "File to write the tallies to.")
_REPORT = flags.DEFINE_string("aa_report", None, "Page of one simulated A/A comparison.")

Row = tuple[str, str, str, str, str, str]
_COLUMNS = ("planted", "gain", "no gain", "loss", "cannot tell yet", "seeds, median (most)")


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --repetitions=1000.")
    if _REPETITIONS.value < 1:
        raise UserError(f"--repetitions {_REPETITIONS.value}: must be at least 1.")
    from experiments.comparison.selftest import cases, run_case
    from experiments.display import make_console

    chosen = [case for case in cases() if all(word in case.what for word in _ONLY.value)]
    if not chosen:
        raise UserError(f"--only {','.join(_ONLY.value)}: no case has such a name.")
    console = make_console()
    tallies = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("self-test", total=len(chosen) * _REPETITIONS.value)
        for case in chosen:
            tallies.append(run_case(case, _REPETITIONS.value, lambda: progress.advance(task)))
    rows = [_row(tally) for tally in tallies]
    _print(console, rows, f"{_REPETITIONS.value:,} simulated comparisons a line, level 5 %")
    if _JSON.value:
        stored = [_stored(tally) for tally in tallies]
        pathlib.Path(_JSON.value).write_text(json.dumps(stored, indent=1) + "\n")
    if _REPORT.value:
        _write_aa_report(pathlib.Path(_REPORT.value))
    if _REAL.value:
        _real(console)
    return 0


def _row(tally: Any) -> Row:
    from experiments.comparison.verdict import Kind

    shares = [f"{100 * tally.share(kind):.1f} %" for kind in Kind]
    seeds = f"{tally.case.pilot_seeds}"
    if tally.recommended:
        ordered = sorted(tally.recommended)
        more = 100 * len(ordered) / tally.repetitions
        middle = ordered[len(ordered) // 2]
        seeds += f", then in {more:.0f} % {middle} ({ordered[-1]})"
    gain, no_gain, loss, unknown = shares
    return (tally.case.what, gain, no_gain, loss, unknown, seeds)


def _print(console: "Console", rows: Sequence[Row], title: str) -> None:
    if _MARKDOWN.value:
        lines = [_COLUMNS, ("---",) * len(_COLUMNS), *rows]
        for line in lines:
            console.print("| " + " | ".join(line) + " |", markup=False)
        return
    table = Table(*_COLUMNS, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table, soft_wrap=False)


def _stored(tally: Any) -> dict[str, Any]:
    return {
        "case": tally.case.what,
        "repetitions": tally.repetitions,
        "first_look": {str(kind): count for kind, count in tally.pilot.items()},
        "last_look": {str(kind): count for kind, count in tally.final.items()},
        "recommended_seeds": tally.recommended,
    }


def _write_aa_report(page: pathlib.Path) -> None:
    """The page of a baseline against itself, with the seeds that the tool recommends."""
    from experiments.comparison.compare import Options, compare
    from experiments.comparison.selftest import aa_runs
    from experiments.report.comparison_page import write_comparison

    runs = aa_runs()
    write_comparison(page, compare(runs, options=Options(baseline=runs[0].exp)))


def _real(console: "Console") -> None:
    """Tiny real runs through the loop: against themselves, and with steps of another speed."""
    from experiments.comparison.real import CASES, make_runs, resample

    workdir = pathlib.Path(str(_WORKDIR.value)) / "selftest"
    make_runs(_REAL.value, workdir)
    rows = []
    for case in CASES:
        kinds, seeds = resample(case, workdir, _REPETITIONS.value)
        gain, no_gain, loss, unknown = (
            f"{100 * count / _REPETITIONS.value:.1f} %" for count in kinds.values()
        )
        rows.append((case.what, gain, no_gain, loss, unknown, f"{seeds}"))
    drawn = f"half of {_REAL.value} seeds drawn {_REPETITIONS.value:,} times"
    _print(console, rows, f"Real runs, {drawn}, level 5 %")


if __name__ == "__main__":
    run_main(main, ("workdir",))
