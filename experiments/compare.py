"""`python -m experiments.compare WORKDIR_OR_RUNS…`: is there a gain, and who says so."""

import json
import os
import pathlib
from collections.abc import Sequence

from absl import flags

from experiments.launch import run_main
from models.errors import UserError

_BASELINE = flags.DEFINE_string(
    "baseline", None, "What the others are compared with, NAME or NAME@HASH; every …_baseline else."
)
_METHODS = flags.DEFINE_list("methods", [], "Names or patterns to compare; all by default.")
_MARGIN = flags.DEFINE_string(
    "margin", "5%", "Smallest gain of interest: a share of the budget, 5%, or a loss, 0.01nats."
)
_LEVEL = flags.DEFINE_float("level", 0.05, "Chance of any false claim at one budget, two-sided.")
_AGAINST_ITSELF = flags.DEFINE_bool(
    "against_itself", False, "Compares the baseline with itself, every other seed with the rest."
)
_FREEZE = flags.DEFINE_string("freeze", None, "File to write the reference set of targets to.")
_FROZEN = flags.DEFINE_string("frozen", None, "File with the reference set to score against.")
_REPORT = flags.DEFINE_string("report", None, "Where the page goes; comparison.html by the runs.")
_PICTURE = flags.DEFINE_string("picture", None, "Also draws the verdicts, as FILE.png or .svg.")


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2:
        raise UserError("no runs given; write python -m experiments.compare runs --baseline=NAME.")
    if not 0 < _LEVEL.value < 0.5:
        raise UserError(f"--level {_LEVEL.value}: must be above 0 and below 0.5.")
    # Imported here, so that --help and wrong flags are quick.
    from experiments.comparison.compare import Options, compare
    from experiments.comparison.figures import figures
    from experiments.comparison.margin import parse_margin
    from experiments.comparison.profile import read_reference_set, write_reference_set
    from experiments.comparison.runs import read_runs
    from experiments.comparison.text import print_comparison
    from experiments.display import make_console
    from experiments.report.comparison_page import write_comparison
    from experiments.report.picture import check_picture, write_picture

    picture = pathlib.Path(_PICTURE.value) if _PICTURE.value else None
    if picture:
        check_picture(picture)
    paths = [pathlib.Path(given) for given in argv[1:]]
    options = Options(
        baseline=_BASELINE.value,
        methods=tuple(_METHODS.value),
        margin=parse_margin(_MARGIN.value),
        level=_LEVEL.value,
        against_itself=_AGAINST_ITSELF.value,
    )
    frozen = read_reference_set(pathlib.Path(_FROZEN.value)) if _FROZEN.value else None
    runs, left_out = read_runs(paths)
    if not runs:
        reasons = "; ".join(f"{one.folder.name}: {one.reason}" for one in left_out[:3])
        raise UserError(f"{argv[1]}: no run that could be compared ({reasons}).")
    comparison = compare(runs, left_out, options, frozen)
    console = make_console()
    print_comparison(console, comparison)
    if not comparison.blocks:
        reasons = "; ".join(str(one) for one in comparison.refused[:3])
        raise UserError(f"Nothing could be compared. {reasons or 'There is only the baseline.'}")
    page = pathlib.Path(_REPORT.value) if _REPORT.value else _beside(paths) / "comparison.html"
    try:
        write_comparison(page, comparison)
        if picture:
            write_picture(picture, comparison)
        page.with_suffix(".json").write_text(json.dumps(figures(comparison), indent=1) + "\n")
        if _FREEZE.value:
            write_reference_set(pathlib.Path(_FREEZE.value), comparison.reference_set)
    except OSError as error:
        where = error.filename2 or error.filename or page
        raise UserError(f"{where}: cannot write there ({error.strerror or error}).") from None
    console.print(f"Page: {page}", markup=False)
    if picture:
        console.print(f"Picture: {picture}", markup=False)
    return 0


def _beside(paths: Sequence[pathlib.Path]) -> pathlib.Path:
    """The folder that holds all runs that were given."""
    return pathlib.Path(os.path.commonpath([path.resolve() for path in paths]))


if __name__ == "__main__":
    run_main(main)
