"""`contours`: the published picture, best sparsity over training FLOPs and weights, with bands."""

import argparse
import math
import pathlib
import textwrap

from rich.console import Console

from models.errors import UserError
from sparsity.law.commands.output import add_out_argument, new_folder, write_csv
from sparsity.law.commands.source import Law, add_points_arguments, read_laws
from sparsity.law.contours import contours

HELP = "picture of the best sparsity over training FLOPs and weights"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_points_arguments(parser)
    add_out_argument(parser, "PNG, SVG and CSV (default: contours)")
    parser.add_argument(
        "--sizes",
        type=float,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="range of non-zero weights (default: 1e6 to ten times the largest seen)",
    )


def run(args: argparse.Namespace) -> dict:
    """Writes a picture and its numbers for each law and returns where they are."""
    from sparsity.law.picture import draw_contours

    if args.sizes is not None:
        low, high = args.sizes
        if not (0 < low < high and math.isfinite(high)):
            raise UserError(f"--sizes {low:g} {high:g}: give two numbers, 0 < LOW < HIGH.")
    folder = new_folder(args.out or pathlib.Path("contours"))
    files = []
    for law in read_laws(args):
        lines = contours(law.coefficients, law.resampled, _sizes(law, args))
        stem = folder / f"contours-{law.name}"
        points = None if law.fitted is None else law.fitted.points
        title = f"Best sparsity, {law.name}: {law.origin}"
        draw_contours(lines, title, points, stem, textwrap.fill(_caution(law.warnings), 165))
        rows = [
            (line.accounting, line.sparsity, *point)
            for line in lines
            for point in zip(line.size, line.compute, line.low, line.high, strict=True)
        ]
        header = ("accounting", "sparsity", "size", "flops", "flops_low", "flops_high")
        write_csv(folder / f"{stem.name}.csv", header, rows)
        files += [f"{stem}{suffix}" for suffix in (".png", ".svg", ".csv")]
    return {"files": files}


def _caution(warnings: list[str]) -> str:
    """What the picture itself has to say of its lines: the last warning, which names figures."""
    if not warnings:
        return ""
    return warnings[-1].replace("on these hang", "Doubtful: fits as good as this one give", 1)


def _sizes(law: Law, args: argparse.Namespace) -> tuple[float, float]:
    if args.sizes is not None:
        return tuple(args.sizes)
    # A little below the smallest model, so that its runs are not on the frame.
    smallest = 1e6 if law.fitted is None else float(law.fitted.points.size.min()) / 1.6
    return smallest, 10.0 * law.largest_size


def show(result: dict, console: Console) -> None:
    """Prints where the files are."""
    for path in result["files"]:
        console.print(path, soft_wrap=True)
