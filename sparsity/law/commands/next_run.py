"""`next`: which run to make next to make a figure surer, at what cost."""

import argparse
import collections
import math
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from models.errors import UserError
from sparsity.law.accounting import ACCOUNTINGS, training_flops
from sparsity.law.commands.source import add_points_arguments, read_points
from sparsity.law.estimate import Estimate, short
from sparsity.law.figures import FIGURES, Figure, figure_named
from sparsity.law.points import UNSTRUCTURED, Points

if TYPE_CHECKING:
    from sparsity.law.design import Run

HELP = "which (N, S, D) to run next to shrink a figure's interval most"
_FACTORS = (0.5, 1.0, 2.0, 4.0)
_SPARSITIES = (0.0, 0.5, 0.75, 0.875, 0.9375)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_points_arguments(parser)
    parser.add_argument(
        "--figure",
        default="computed_50",
        help=f"{', '.join(FIGURES)}, or all (D-optimal: all coefficients at once)",
    )
    parser.add_argument(
        "--budget", type=float, help="training FLOPs to spend (default: twice the dearest run)"
    )
    parser.add_argument(
        "--accounting", choices=ACCOUNTINGS, default="computed", help="what a sparse run costs"
    )
    parser.add_argument("--most", type=int, default=4, help="most runs to plan together")
    around = "(default: what was run, halved, doubled, quadrupled)"
    parser.add_argument("--sizes", type=float, nargs="+", help=f"N that can be run {around}")
    parser.add_argument("--data", type=float, nargs="+", help=f"D that can be run {around}")
    parser.add_argument(
        "--sparsities",
        type=float,
        nargs="+",
        help="S that can be run (default: what was run, and 0, .5, .75, .875, .9375)",
    )


def run(args: argparse.Namespace) -> dict:
    """Plans the next runs of each family of points."""
    figure = None if args.figure == "all" else figure_named(args.figure)
    if args.budget is not None and not (math.isfinite(args.budget) and args.budget > 0):
        raise UserError(f"--budget={args.budget:g}: give training FLOPs above 0.")
    if args.most < 1:
        raise UserError(f"--most={args.most}: give at least 1.")
    for value in args.sparsities or ():
        if not 0 <= value < 1:
            raise UserError(f"--sparsities {value:g}: give fractions from 0 to below 1.")
    for name in ("sizes", "data"):
        for value in getattr(args, name) or ():
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"--{name} {value:g}: give numbers above 0.")
    measured = read_points(args)
    if not measured:
        raise UserError("give the points so far, by --points=CSV or --runs=FOLDER.")
    return {"laws": [_plan(points, figure, args) for points in measured]}


def _plan(points: Points, figure: Figure | None, args: argparse.Namespace) -> dict:
    from sparsity.law.bootstrap import bootstrap
    from sparsity.law.design import Design, candidate_runs
    from sparsity.law.fit import fit, recipe_for

    recipe = recipe_for(points.name, args.residual, args.delta, starts=args.starts, seed=args.seed)
    fitted = fit(points, recipe)
    design = Design(fitted, figure)
    candidates = candidate_runs(*_grid(points, args), args.accounting)
    made = training_flops(points.sparsity, points.size, points.data, args.accounting)
    budget = args.budget or 2.0 * float(made.max())
    cheapest = min(run.cost for run in candidates)
    if cheapest > budget:
        raise UserError(
            f"--budget={budget:g}: the cheapest run that could be made costs {cheapest:.3g} FLOPs."
        )
    plan = design.best_plan(candidates, budget, args.most)
    affordable = [run for run in candidates if run.cost <= budget]
    spreads = design.single_spreads(affordable)
    best = np.argsort(spreads, kind="stable")[:5]
    return {
        "name": points.name,
        "figure": args.figure,
        "title": "all coefficients" if figure is None else figure.title,
        "accounting": args.accounting,
        "budget": budget,
        "now": None
        if figure is None
        else Estimate.of(
            figure.value, fitted.coefficients, bootstrap(fitted, args.resamples).coefficients
        ),
        "plan": plan,
        "singles": [{"run": affordable[i], "spread_after": spreads[i]} for i in best],
    }


def _grid(points: Points, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the sparsities, sizes and data to choose from."""
    law = points.sparsity[points.pattern == UNSTRUCTURED]
    sparsities = args.sparsities or sorted({*law.tolist(), *_SPARSITIES})
    return (
        np.array(sparsities),
        np.array(args.sizes) if args.sizes else _around(points.size),
        np.array(args.data) if args.data else _around(points.data),
    )


def _around(values: np.ndarray) -> np.ndarray:
    return np.unique(np.outer(_FACTORS, np.unique(values)))


def show(result: dict, console: Console) -> None:
    """Prints each plan and the best single runs."""
    for law in result["laws"]:
        plan = law["plan"]
        console.print(f"[bold]{law['name']}[/bold]: to know better: {law['title']}")
        if law["now"] is not None:
            console.print(f"now {law['now'].text()}, by resampling")
        table = Table(
            title=f"run next, for {plan.cost:.3g} of {law['budget']:.3g} FLOPs "
            f"(zeros {law['accounting']})"
        )
        _columns(table)
        table.add_column("seeds", justify="right")
        for run, seeds in collections.Counter(plan.runs).items():
            table.add_row(*_cells(run), str(seeds))
        console.print(table)
        console.print(_shrinking(law, plan.spread_after), soft_wrap=True)
        table = Table(title="the best single runs")
        _columns(table)
        table.add_column("interval then", justify="right")
        for single in law["singles"]:
            ratio = single["spread_after"] / plan.spread_before
            table.add_row(*_cells(single["run"]), f"{100 * ratio:.0f} % of now")
        console.print(table)
        console.print("[dim]by the law linearised at the fit; noise as in the points so far[/dim]")


def _columns(table: Table) -> None:
    for heading in ("sparsity", "non-zero weights", "data", "training FLOPs"):
        table.add_column(heading, justify="right")


def _cells(run: "Run") -> tuple[str, ...]:
    return f"{100 * run.sparsity:g} %", short(run.size), short(run.data), f"{run.cost:.3g}"


def _shrinking(law: dict, after: float) -> str:
    before = law["plan"].spread_before
    if law["figure"] == "all":
        return (
            f"the intervals of all coefficients shrink to {100 * after / before:.0f} % on average."
        )
    # 1.645 standard deviations either way hold 90 %.
    now, then = math.exp(1.645 * before), math.exp(1.645 * after)
    return (
        f"expected 90 % interval: within a factor of {short(now)} of the value now, "
        f"{short(then)} then."
    )
