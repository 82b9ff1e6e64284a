"""`fit`: the law of measured points, with everything that says how far to trust it."""

import argparse
import dataclasses
import pathlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from models.errors import UserError
from sparsity.law.commands.equivalent import (
    figure_rows,
    pattern_rows,
    show_figures,
    show_patterns,
)
from sparsity.law.commands.output import add_out_argument, new_folder, write_csv, write_json
from sparsity.law.commands.source import FLAT, add_points_arguments, read_points
from sparsity.law.estimate import Estimate, short
from sparsity.law.points import Points, few_values
from sparsity.law.published import PUBLISHED

if TYPE_CHECKING:
    from sparsity.law.fit import Fit
    from sparsity.law.profile import Profile

HELP = "fit the law to points, with intervals, profiles and errors out of sample"
# Published coefficients whose objective is within this of the minimum are the minimiser: they come
# with eight digits.
_SAME_OBJECTIVE = 1e-4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_points_arguments(parser)
    add_out_argument(parser, "JSON, the profiles as CSV and picture")
    parser.add_argument(
        "--flat",
        type=float,
        default=FLAT,
        help="rise of the objective up to which a fit counts as equally good",
    )
    parser.add_argument(
        "--compare",
        choices=tuple(PUBLISHED),
        help="published coefficients to compare with (default: those of the same family)",
    )


def run(args: argparse.Namespace) -> dict:
    """Fits each family and returns all that `show` prints."""
    if not 0 < args.flat < 1:
        raise UserError(f"--flat={args.flat:g}: give a fraction, such as 0.02 for 2 %.")
    measured = read_points(args)
    if not measured:
        raise UserError("give the points, by --points=CSV or --runs=FOLDER.")
    folder = None if args.out is None else new_folder(args.out)
    result = {"laws": [_fit_one(points, args, folder) for points in measured]}
    if folder is not None:
        write_json(folder / "fit.json", result)
    return result


def _fit_one(points: Points, args: argparse.Namespace, folder: pathlib.Path | None) -> dict:
    # Imported here so that --help and a wrong option answer at once.
    from sparsity.law.bootstrap import bootstrap
    from sparsity.law.fit import errors_of, fit, recipe_for
    from sparsity.law.holdout import guesses, hold_out
    from sparsity.law.identification import at_edge, explain, weaknesses
    from sparsity.law.patterns import pattern_worths
    from sparsity.law.profile import profiles

    recipe = recipe_for(points.name, args.residual, args.delta, starts=args.starts, seed=args.seed)
    fitted = fit(points, recipe)
    resamples = bootstrap(fitted, args.resamples)
    profiled = profiles(fitted, args.flat)
    warnings = few_values(points) + guesses(points) + at_edge(points, fitted.coefficients)
    if fitted.at_bound:
        warnings.append(f"on the bound of what is allowed: {', '.join(fitted.at_bound)}.")
    if fitted.agreeing < 0.5 * recipe.starts:
        warnings.append(
            f"only {fitted.agreeing} of {recipe.starts} starts reached the lowest objective: "
            "there may be a lower one; try more --starts."
        )
    warnings += explain(weaknesses(profiled), args.flat)
    if folder is not None:
        _write_profiles(folder, points.name, profiled, args.flat)
    return {
        "name": points.name,
        "points": len(points),
        "recipe": dataclasses.asdict(recipe),
        "resamples": args.resamples,
        "flat": args.flat,
        "objective": fitted.objective,
        "gradient": fitted.gradient,
        "starts": recipe.starts,
        "agreeing": fitted.agreeing,
        "coefficients": [
            {
                "name": profile.name,
                "estimate": Estimate.over(
                    profile.best, getattr(resamples.coefficients, profile.name)
                ),
                "flat": [profile.low, profile.high],
                "flat_is_open": [profile.open_low, profile.open_high],
            }
            for profile in profiled
        ],
        "figures": figure_rows(points.name, fitted.coefficients, resamples.coefficients),
        "patterns": pattern_rows(pattern_worths(fitted, resamples)),
        "errors": {
            "in sample": errors_of(fitted.coefficients, points, fitted.multipliers),
            **hold_out(fitted),
        },
        "comparison": _comparison(fitted, args.compare),
        "warnings": warnings,
    }


def _comparison(fitted: "Fit", compare: str | None) -> dict | None:
    from sparsity.law.fit import objective_of

    name = compare or fitted.points.name
    if name not in PUBLISHED:
        return None
    objective = objective_of(PUBLISHED[name].coefficients, fitted)
    rise = objective / fitted.objective - 1.0 if fitted.objective > 0 else float("inf")
    return {"name": name, "objective": objective, "is_minimiser": rise <= _SAME_OBJECTIVE}


def _write_profiles(
    folder: pathlib.Path, name: str, profiled: "list[Profile]", flat: float
) -> None:
    from sparsity.law.profile_picture import draw_profiles

    rows = [
        (profile.name, value, excess)
        for profile in profiled
        for value, excess in zip(profile.values, profile.excess, strict=True)
    ]
    write_csv(folder / f"profiles-{name}.csv", ("coefficient", "value", "rise"), rows)
    draw_profiles(profiled, flat, name, folder / f"profiles-{name}")


def show(result: dict, console: Console) -> None:
    """Prints each fit: how it went, coefficients, figures, errors, comparison, warnings."""
    for law in result["laws"]:
        recipe = law["recipe"]
        console.print(
            f"[bold]{law['name']}[/bold]: {law['points']} points, Huber on the "
            f"{'log of the ' if recipe['residual'] == 'log' else ''}loss, delta "
            f"{recipe['delta']:g}\n"
            f"objective {law['objective']:.6e}, reached by {law['agreeing']} of {law['starts']} "
            f"starts; gradient there {law['gradient']:.1e} (of objective / delta²)"
        )
        _show_coefficients(law, console)
        show_figures(law["figures"], console)
        if law["patterns"]:
            show_patterns(law["patterns"], console)
        _show_errors(law["errors"], console)
        if law["comparison"]:
            console.print(_compared(law), soft_wrap=True)
        for warning in law["warnings"]:
            console.print(f"[yellow]warning:[/yellow] {warning}", soft_wrap=True)
        console.print()


def _show_coefficients(law: dict, console: Console) -> None:
    table = Table(title=f"coefficients, {law['resamples']} resamples")
    for heading in ("", "best", "5 %", "50 %", "95 %", f"flat to {100 * law['flat']:g} %"):
        table.add_column(heading, justify="right")
    for row in law["coefficients"]:
        estimate: Estimate = row["estimate"]
        cells = [
            short(value, 4)
            for value in (estimate.value, estimate.low, estimate.median, estimate.high)
            if value is not None
        ]
        low, high = row["flat"]
        marks = ["…" if is_open else "" for is_open in row["flat_is_open"]]
        table.add_row(row["name"], *cells, f"{marks[0]}{short(low)} to {short(high)}{marks[1]}")
    console.print(table)


def _show_errors(errors: dict, console: Console) -> None:
    table = Table(title="errors of predicted losses")
    for heading in ("", "points", "RMSE", "mean", "largest"):
        table.add_column(heading, justify="right")
    for name, found in errors.items():
        label = name if name == "in sample" else f"{name}, never seen"
        if found is None:
            table.add_row(label, "", "", "too little left to fit", "")
            continue
        table.add_row(
            label,
            str(found.points),
            short(found.rmse),
            f"{100 * found.mean_relative:.2f} %",
            f"{100 * found.max_relative:.1f} %",
        )
    console.print(table)


def _compared(law: dict) -> str:
    published = law["comparison"]
    head = f"published coefficients of {published['name']}: objective {published['objective']:.6e}"
    if published["is_minimiser"]:
        return f"{head}: they are the minimiser on these points."
    rise = 100.0 * (published["objective"] / law["objective"] - 1.0)
    return f"{head}, {rise:.0f} % above the minimum: they are NOT the minimiser on these points."
