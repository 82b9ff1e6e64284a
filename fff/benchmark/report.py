"""The measurements as tables, a picture and JSON."""

import json
import math
import pathlib
import sys
import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table

from models.errors import UserError

# Characters of a line where the output is no terminal, which would say its own.
_WIDTH = 150


def make_folder(folder: pathlib.Path) -> None:
    """Raises UserError where results cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"--out={folder}: cannot write there ({error.strerror}).") from None


def write(results: dict[str, Any], folder: pathlib.Path) -> None:
    """Writes `benchmark.json` and `benchmark.png` into the folder."""
    (folder / "benchmark.json").write_text(json.dumps(results, indent=1) + "\n")
    picture(results).savefig(folder / "benchmark.png", dpi=120)


def show(results: dict[str, Any], folder: pathlib.Path) -> None:
    """Prints the tables."""
    console, machine, roofline = _console(), results["machine"], results["roofline"]
    routing = results["routing"]
    console.print(
        f"{results['trees']}, width {results['model_dim']}, {results['inputs']} inputs: "
        f"{routing['leaves_used']:,} of {routing['leaves']:,} leaves, the fullest with "
        f"{100 * routing['fullest_leaf']:.1f} % of tokens\n"
        f"{machine['processor']}, {machine['device']}, {machine['threads']} threads, "
        f"jax {machine['jax']}, numpy {machine['numpy']}\n"
        f"read: the {roofline['tables_bytes'] / 1e6:.0f} MB of tables at "
        f"{roofline['tables_gb_per_s']:.0f} GB/s, memory at {roofline['memory_gb_per_s']:.0f} GB/s;"
        f" product: {roofline['product_gflops']:.0f} GFLOP/s"
    )
    for hot in results["hot"]:
        console.print(_hot_table(hot, roofline))
        console.print(
            f"A dense layer that takes the time of the fast one has {hot['equal_time_width']:.0f} "
            "neurons."
        )
    console.print(_speedup_table(results))
    for turn in results["in_turn"]:
        table = Table(title=f"{turn['layers']} layers in turn, {turn['tokens']:,} tokens")
        for column in ("layer", "µs a layer", "over FFF"):
            table.add_column(column, justify="left" if column == "layer" else "right")
        for name, micros in turn["us_per_layer"].items():
            over = turn["speedup"].get(name)
            table.add_row(name, f"{micros:.4g}", "" if over is None else f"{over:.3g}")
        console.print(table)
    model = results["model"]
    times = ", ".join(f"{name} {ms:.1f} ms" for name, ms in model["milliseconds"].items())
    console.print(
        f"Encoder of {model['layers']} layers, 1 x {model['tokens']} tokens: {times}. FFF makes it "
        f"{model['speedup']:.2f} times faster, a layer that costs nothing "
        f"{model['speedup_without_feedforward']:.2f} times."
    )
    console.print(f"All of it in {folder}/benchmark.json, a picture in benchmark.png.")


def print_training(rows: list[dict[str, Any]]) -> None:
    """Prints how forward passes and training steps compare with those over all neurons."""
    table = Table(title="1,024 tokens: milliseconds, and times faster than over all neurons")
    table.add_column("trees")
    table.add_column("used", justify="right")
    for name in rows[0]["milliseconds"]:
        table.add_column(name, justify="right")
    for row in rows:
        cells = []
        for name in rows[0]["milliseconds"]:
            ms, speedup = row["milliseconds"].get(name), row["speedup"].get(name)
            cells.append("" if ms is None else f"{ms:.3g}")
            cells[-1] += "" if speedup is None else f" ({speedup:.3g}x)"
        table.add_row(row["trees"], f"{100 * row['share']:.1f} %", *cells)
    _console().print(table)


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=_WIDTH)


def _hot_table(hot: dict[str, Any], roofline: dict[str, float]) -> Table:
    table = Table(title=f"one layer, {hot['tokens']:,} tokens")
    columns = ("layer", "tokens timed", "µs a token", "GFLOP/s", "of the product")
    for column in (*columns, "rows GB/s", "of a plain read", "MB held", "error"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for row in hot["rows"]:
        table.add_row(
            row["name"],
            f"{row['tokens']:,}",
            f"{row['us_per_token']:.4g}",
            f"{row['gflops']:.3g}",
            f"{100 * row['gflops'] / roofline['product_gflops']:.0f} %",
            f"{row['row_gb_per_s']:.3g}",
            f"{100 * row['row_gb_per_s'] / roofline['tables_gb_per_s']:.0f} %",
            f"{row['resident_bytes'] / 1e6:.1f}",
            f"{row['largest_error']:.0e}",
        )
    return table


def _speedup_table(results: dict[str, Any]) -> Table:
    """The same layer under every choice of what it is compared with."""
    last = results["hot"][-1]
    table = Table(title=f"how many times faster, {last['tokens']:,} tokens, by baseline")
    table.add_column("baseline")
    for name in last["speedup"]:
        table.add_column(name, justify="right")
    for other in next(iter(last["speedup"].values())):
        cells = (f"{speedups[other]:.3g}" for speedups in last["speedup"].values())
        table.add_row(other, *cells)
    return table


def picture(results: dict[str, Any]) -> Any:
    """Returns a figure of the last number of tokens: time of each layer, and times faster."""
    from matplotlib.figure import Figure

    last = results["hot"][-1]
    rows = sorted(last["rows"], key=lambda row: row["us_per_token"])
    fast = [row for row in rows if row["level"] == "fff"]
    dense = [row for row in rows if row["level"] != "fff"]
    speedups = last["speedup"][fast[0]["name"]]
    figure = Figure(figsize=(15, 0.3 * len(rows) + 2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _bars(left, {row["name"]: row["us_per_token"] for row in rows}, {row["name"] for row in fast})
    left.set(xlabel="µs a token", title=f"one layer, {last['tokens']:,} tokens")
    _bars(right, {row["name"]: speedups[row["name"]] for row in dense}, set())
    right.set(xlabel="times faster", title=f"{fast[0]['name']} against each dense layer")
    return figure


def _bars(axes: Any, values: dict[str, float], ours: set[str]) -> None:
    """Draws bars with their figures, on decades that hold them all."""
    colours = ["tab:blue" if name in ours else "tab:grey" for name in values]
    axes.bar_label(
        axes.barh(list(values), list(values.values()), color=colours), fmt="{:.3g}", padding=3
    )
    lowest, highest = min(values.values()), max(values.values())
    # From the decade below the shortest bar to where the longest one's figure ends.
    axes.set(xscale="log", xlim=(10 ** math.floor(math.log10(lowest)) / 2, 3 * highest))
