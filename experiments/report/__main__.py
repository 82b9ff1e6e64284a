"""`python -m experiments.report RUNS…`: makes the pages of runs anew."""

import pathlib
from collections.abc import Sequence

from experiments.launch import run_main
from models.errors import UserError


def main(argv: Sequence[str]) -> int:
    if len(argv) < 2:
        raise UserError("no runs given; write python -m experiments.report runs.")
    from experiments.comparison.runs import LeftOut, read_run, run_folders
    from experiments.report.run_page import write_run

    made = 0
    for folder in run_folders([pathlib.Path(given) for given in argv[1:]]):
        read = read_run(folder)
        if isinstance(read, LeftOut):
            print(f"Left out: {folder}: {read.reason}.")
            continue
        try:
            print(write_run(folder))
        except UserError as error:
            print(f"Left out: {error}")
            continue
        made += 1
    if not made:
        raise UserError(f"{argv[1]}: no run that a page could be made of.")
    return 0


if __name__ == "__main__":
    run_main(main)
