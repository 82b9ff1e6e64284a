"""`python -m sparsity.benchmark [--training]`: what sparsity buys and costs on this device."""

import argparse
import json
import os
import pathlib
import platform
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

from models.allocator import keep_freed_memory
from sparsity.benchmark_products import (
    FORMS,
    SHAPES,
    SPARSE_FORMS,
    TOKENS,
    Product,
    break_even,
    products,
)
from sparsity.benchmark_training import Overhead, Row, mask_updates, training_steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--training", action="store_true", help="cost of pruning in training, not of the products"
    )
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds")
    parser.add_argument("--layers", type=int, default=12, help="layers of the BERT-base step")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    arguments = parser.parse_args()
    # As in a run: every training step allocates the same buffers.
    keep_freed_memory()
    console = Console(width=110)
    console.print(f"{jax.devices()[0].device_kind}, {os.cpu_count()} CPUs, {platform.machine()}")
    if arguments.training:
        figures = training(console, arguments.layers, arguments.rounds)
    else:
        figures = inference(console, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def training(console: Console, layers: int, rounds: int) -> dict[str, Any]:
    """Prints and returns what choosing and applying masks costs."""
    updates = mask_updates(rounds)
    console.print(_cost_table("Choosing masks for 100 million weights, float32", updates))
    steps, overheads = training_steps(layers, rounds)
    title = f"A step of BERT-base with {layers} layers, 8 x 128 tokens, float32, AdamW"
    console.print(_cost_table(title, steps))
    for overhead in overheads:
        console.print(_overhead_text(overhead))
    return {"updates": updates, "steps": steps, "overheads": overheads}


def inference(console: Console, rounds: int) -> dict[str, Any]:
    """Prints and returns absolute times, bytes and the break-even sparsity of products."""
    every = []
    for shape in SHAPES:
        for tokens in TOKENS:
            rows = products(shape, tokens, rounds)
            console.print(_product_table(f"{shape} {SHAPES[shape]}, {tokens} tokens", rows))
            for form in SPARSE_FORMS:
                console.print(f"  {form}: {_verdict(break_even(rows, form))}")
            every += rows
    console.print("scipy ran on one core. jax has no product for 2:4: only other forms are timed.")
    return {"products": every}


def _verdict(sparsity: float | None) -> str:
    if sparsity is None:
        return "not faster than the dense product, even at 99 %: no gain"
    return f"faster than the dense product from {100 * sparsity:.1f} % on"


def _overhead_text(overhead: Overhead) -> str:
    median, low, high = (
        f"{100 * share:.2f}" for share in (overhead["choosing"], *overhead["choosing_range"])
    )
    return (
        f"{overhead['name']}: choosing masks every 100 steps adds {median} % to a dense step"
        f" ({low} to {high} % over rounds).\n  A pruned weight's mask takes"
        f" {overhead['held_bytes']:.2f} bytes, {overhead['checkpoint_bits']:.2f} bits in a"
        f" checkpoint;\n  the peak of a step is {overhead['peak_bytes']:.2f} bytes a pruned weight"
        f" above the dense step's."
    )


def _cost_table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title)
    for column in ("what", "median", "of the reference", "spread of the ratio"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for row in rows:
        low, high = row["ratio_range"]
        table.add_row(
            row["name"],
            f"{row['seconds']:.3f} s",
            f"{row['ratio']:.4f}",
            f"{low:.4f} to {high:.4f}",
        )
    return table


def _product_table(title: str, rows: list[Product]) -> Table:
    table = Table(title=title)
    table.add_column("zeros")
    for form in FORMS:
        table.add_column(f"{form}, ms", justify="right")
    for form in ("dense", "BCSR"):
        table.add_column(f"{form}, MB", justify="right")
    for row in rows:
        times = [f"{1000 * row['seconds'][form]:.3f}" for form in FORMS]
        sizes = [f"{row['bytes'][form] / 1e6:.2f}" for form in ("dense", "BCSR")]
        table.add_row(row["pattern"], *times, *sizes)
    return table


if __name__ == "__main__":
    main()
