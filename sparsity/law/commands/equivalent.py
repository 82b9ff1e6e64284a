"""`equivalent`: the dense size that a sparse model is worth, beside the published figures."""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from sparsity.law.commands.source import Law, add_points_arguments, read_laws, show_notes
from sparsity.law.estimate import Estimate
from sparsity.law.figures import FIGURES
from sparsity.law.form import Coefficients, Numeric, equivalent_size
from sparsity.law.published import PATTERN_FINDINGS, PUBLISHED

if TYPE_CHECKING:
    from sparsity.law.patterns import PatternWorth

HELP = "dense size multipliers, beside the published ones"
_SPARSITIES = (0.5, 0.75, 0.875, 0.9375)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_points_arguments(parser)


def run(args: argparse.Namespace) -> dict:
    """Returns the multipliers and the headline figures of each law."""
    return {"laws": [_law(law) for law in read_laws(args)]}


def _law(law: Law) -> dict:
    return {
        "name": law.name,
        "origin": law.origin,
        "warnings": law.warnings,
        "notes": law.notes,
        "multipliers": [
            {
                "sparsity": sparsity,
                "per_nonzero": law.estimate(equivalent_size, sparsity),
                "per_dense_start": law.estimate(_equivalent_of_start, sparsity),
            }
            for sparsity in _SPARSITIES
        ],
        "limit": law.estimate(equivalent_size, 1.0),
        "patterns": pattern_rows(law.patterns),
        "figures": figure_rows(law.name, law.coefficients, law.resampled),
    }


def figure_rows(
    family: str, coefficients: Coefficients, resampled: Coefficients | None
) -> list[dict]:
    """Returns every headline figure, with its interval and what the family's paper prints."""
    published = PUBLISHED[family].figures if family in PUBLISHED else {}
    return [
        {
            "name": name,
            "title": figure.title,
            "estimate": Estimate.of(figure.value, coefficients, resampled),
            "published": published.get(name),
        }
        for name, figure in FIGURES.items()
    ]


def pattern_rows(worths: "Iterable[PatternWorth]") -> list[dict]:
    """Returns what each N:M pattern is worth, its verdict, and what was published of it."""
    return [
        {
            **vars(worth),
            "verdict": worth.verdict,
            "published": PATTERN_FINDINGS.get(worth.pattern),
        }
        for worth in worths
    ]


def _equivalent_of_start(coefficients: Coefficients, sparsity: float) -> Numeric:
    return (1.0 - sparsity) * equivalent_size(coefficients, sparsity)


def show(result: dict, console: Console) -> None:
    """Prints both tables of each law."""
    for law in result["laws"]:
        table = Table(title=f"{law['name']}: dense weights that sparse weights are worth")
        for heading in ("sparsity", "per non-zero weight", "per weight of the dense start"):
            table.add_column(heading, justify="right")
        for row in law["multipliers"]:
            table.add_row(
                f"{100 * row['sparsity']:g} %",
                row["per_nonzero"].text(),
                row["per_dense_start"].text(),
            )
        table.add_row("→ 100 %", law["limit"].text(), "")
        console.print(table)
        if law["patterns"]:
            show_patterns(law["patterns"], console)
        show_figures(law["figures"], console)
        show_notes(law, console)


def show_figures(figures: list[dict], console: Console) -> None:
    """Prints the headline figures beside the published ones."""
    table = Table(title="headline figures")
    table.add_column("figure")
    table.add_column("here", justify="right")
    table.add_column("published", justify="right")
    for figure in figures:
        estimate: Estimate = figure["estimate"]
        quoted = f"{figure['published']}×" if figure["published"] else ""
        table.add_row(figure["title"], estimate.text(), quoted)
    console.print(table)


def show_patterns(patterns: list[dict], console: Console) -> None:
    """Prints the worth of N:M patterns beside unstructured sparsity and the published finding."""
    table = Table(title="N:M patterns: dense weights that one non-zero weight is worth")
    for heading in ("pattern", "runs", "worth", "unstructured", "ratio", "verdict", "published"):
        table.add_column(heading)
    for row in patterns:
        table.add_row(
            row["pattern"],
            str(row["runs"]),
            row["multiplier"].text(),
            row["unstructured"].text(),
            row["ratio"].text(),
            row["verdict"],
            row["published"] or "",
        )
    console.print(table)
