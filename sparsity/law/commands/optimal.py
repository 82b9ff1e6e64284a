"""`optimal`: the best sparsity for a size and a budget, and what it buys."""

import argparse
import math

from rich.console import Console
from rich.table import Table

from models.errors import UserError
from sparsity.law.accounting import ACCOUNTINGS
from sparsity.law.commands.source import Law, add_points_arguments, read_laws, show_notes
from sparsity.law.decision import Decision, decide
from sparsity.law.estimate import Estimate, short
from sparsity.law.form import Coefficients
from sparsity.law.optimal import (
    chinchilla_multiple,
    dense_optimal_compute,
    sparsity_at_multiple,
)
from sparsity.law.published import PUBLISHED

HELP = "best sparsity for a number of weights and a training budget"
_SPARSITIES = (0.25, 0.5, 0.75, 0.875)
_MULTIPLES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)

# Rows of the answer: field of Decision, heading, unit.
_ROWS = (
    ("sparsity", "best sparsity", "%"),
    ("multiple", "budget over the dense optimum", "×"),
    ("loss_gained", "loss below the dense model of that size, same FLOPs", ""),
    ("equal_data_size", "equals on the same data a dense model of", "weights"),
    ("equal_data_cost", "its training FLOPs over that model's", "×"),
    ("equal_cost_size", "equals for the same FLOPs a dense model of", "weights"),
    ("weights_saved", "non-zero weights saved against that at inference", "%"),
    ("dense_cost", "FLOPs for the dense model of that size to match, over these", "×"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_points_arguments(parser)
    parser.add_argument("--params", type=float, help="N, non-zero weights outside embeddings")
    parser.add_argument("--compute", type=float, help="training FLOPs for --params")
    parser.add_argument(
        "--overtrain", type=float, help="training FLOPs as a multiple of the dense optimum"
    )


def run(args: argparse.Namespace) -> dict:
    """Returns the multiples and best sparsities of each law, and the answer for --params."""
    for option in ("params", "compute", "overtrain"):
        value = getattr(args, option)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise UserError(f"--{option}={value:g}: give a number above 0.")
    if (args.compute is not None or args.overtrain is not None) and args.params is None:
        raise UserError("--compute and --overtrain need --params, the non-zero weights.")
    if args.params is not None and (args.compute is None) == (args.overtrain is None):
        raise UserError("--params: give the budget too, by one of --compute and --overtrain.")
    return {"params": args.params, "laws": [_law(law, args) for law in read_laws(args)]}


def _law(law: Law, args: argparse.Namespace) -> dict:
    published = PUBLISHED[law.name].figures if law.name in PUBLISHED else {}
    notes = law.notes
    result: dict = {
        "name": law.name,
        "origin": law.origin,
        "warnings": law.warnings,
        "notes": notes,
        "multiples": [
            {
                "sparsity": sparsity,
                **{name: law.estimate(chinchilla_multiple, sparsity, name) for name in ACCOUNTINGS},
                "published": {
                    name: published.get(f"{name}_{100 * sparsity:g}") for name in ACCOUNTINGS
                },
            }
            for sparsity in _SPARSITIES
        ],
        "best": [
            {
                "multiple": multiple,
                **{
                    name: law.estimate(sparsity_at_multiple, multiple, name) for name in ACCOUNTINGS
                },
            }
            for multiple in _MULTIPLES
        ],
    }
    if args.params is not None:
        result["answer"] = {name: _answer(law, args, name) for name in ACCOUNTINGS}
        if args.params > law.largest_size:
            times = short(args.params / law.largest_size, 2)
            notes.append(
                f"{short(args.params)} weights are {times} times the largest size this law has "
                "seen: an extrapolation. The best sparsity hangs on the budget's multiple alone"
            )
    return result


def _answer(law: Law, args: argparse.Namespace, accounting: str) -> dict[str, Estimate]:
    def decision(coefficients: Coefficients) -> Decision:
        compute = args.compute
        if compute is None:
            compute = args.overtrain * dense_optimal_compute(coefficients, args.params)
        return decide(coefficients, args.params, compute, accounting)

    best = decision(law.coefficients)._asdict()
    if law.resampled is None:
        return {field: Estimate(value=float(value)) for field, value in best.items()}
    spread = decision(law.resampled)._asdict()
    return {field: Estimate.over(value, spread[field]) for field, value in best.items()}


def show(result: dict, console: Console) -> None:
    """Prints the tables of each law, the answer last."""
    for law in result["laws"]:
        table = Table(title=f"{law['name']}: multiple of the dense-optimal compute")
        table.add_column("where this sparsity is best", justify="right")
        for name in ACCOUNTINGS:
            table.add_column(f"zeros {name}", justify="right")
            table.add_column("published", justify="right")
        for row in law["multiples"]:
            cells = [f"{100 * row['sparsity']:g} %"]
            for name in ACCOUNTINGS:
                quoted = row["published"][name]
                cells += [row[name].text(), f"{quoted}×" if quoted else ""]
            table.add_row(*cells)
        console.print(table)
        table = Table(title="best sparsity, %")
        table.add_column("at this multiple of the dense optimum", justify="right")
        for name in ACCOUNTINGS:
            table.add_column(f"zeros {name}", justify="right")
        for row in law["best"]:
            cells = [row[name].text(scale=100) for name in ACCOUNTINGS]
            table.add_row(f"{row['multiple']:g}×", *cells)
        console.print(table)
        if "answer" in law:
            _show_answer(result["params"], law["answer"], console)
        show_notes(law, console)


def _show_answer(params: float, answer: dict, console: Console) -> None:
    table = Table(title=f"{short(params)} non-zero weights")
    table.add_column("")
    for name in ACCOUNTINGS:
        table.add_column(f"zeros {name}", justify="right")
    for field, heading, unit in _ROWS:
        scale = 100 if unit == "%" else 1
        suffix = f" {unit}" if unit in ("%", "×") else ""
        cells = [answer[name][field].text(scale) + suffix for name in ACCOUNTINGS]
        table.add_row(heading, *cells)
    console.print(table)
