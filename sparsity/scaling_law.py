"""Fits the sparsity scaling law and answers with it: fit, optimal, equivalent, contours, next.

For one: python -m sparsity.scaling_law optimal --params=7e9 --overtrain=14
"""

import argparse
import os
import sys
from collections.abc import Sequence

from absl import app
from absl.flags import argparse_flags
from rich.console import Console

from models.errors import UserError
from sparsity.law.commands import contours, equivalent, fit, next_run, optimal
from sparsity.law.commands.output import to_json

COMMANDS = {
    "fit": fit,
    "optimal": optimal,
    "equivalent": equivalent,
    "contours": contours,
    "next": next_run,
}
# Tables are cut where nobody can widen the terminal, so a pipe gets room.
_PIPE_COLUMNS = 120


class _Parser(argparse_flags.ArgumentParser):
    """Says what is wrong in one line, where argparse would print the whole usage too."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parses a command line whose first word is the program."""
    parser = _Parser(prog="scaling_law", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.HELP, inherited_absl_flags=None)
        command.add_arguments(subparser)
        subparser.add_argument("--json", action="store_true", help="print JSON, not tables")
    return parser.parse_args(argv[1:])


def main(args: argparse.Namespace) -> None:
    """Runs one command and prints its tables, or JSON; a UserError exits with 2."""
    # A fit is small float64 work: it must neither wait for an accelerator nor hold one.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    command = COMMANDS[args.command]
    try:
        with Console(stderr=True).status(f"{args.command} …"):
            result = command.run(args)
    except UserError as error:
        print(f"scaling_law {args.command}: {error}", file=sys.stderr)
        sys.exit(2)
    if args.json:
        print(to_json(result))
    else:
        width = None if sys.stdout.isatty() else _PIPE_COLUMNS
        command.show(result, Console(width=width, highlight=False))


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
