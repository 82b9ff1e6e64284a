"""Where a command gets its law: fitted to measured points, or the published coefficients."""

import argparse
import dataclasses
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

from models.errors import UserError, did_you_mean
from sparsity.law.estimate import Estimate
from sparsity.law.form import Coefficients, Numeric
from sparsity.law.points import Points, few_values
from sparsity.law.published import PUBLISHED, SOURCE
from sparsity.law.read_csv import COLUMNS, read_csv
from sparsity.law.read_runs import read_runs

if TYPE_CHECKING:
    from sparsity.law.fit import Fit
    from sparsity.law.patterns import PatternWorth

# Rise of the objective up to which a fit counts as equally good.
FLAT = 0.02


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law:
    """A law that a command can ask."""

    # Its family, and where its coefficients come from, for people.
    name: str
    origin: str
    # The coefficients, and their resamples where there are points.
    coefficients: Coefficients
    resampled: Coefficients | None
    # The largest N it has seen.
    largest_size: float
    # The fit behind it; None where the coefficients are the published ones.
    fitted: "Fit | None"
    # What the N:M patterns among the points are worth.
    patterns: "tuple[PatternWorth, ...]" = ()

    def estimate(self, figure: Callable[..., Numeric], *arguments: float | str) -> Estimate:
        """Returns figure(coefficients, *arguments) with its interval, where there are resamples."""
        return Estimate.of(
            lambda coefficients: figure(coefficients, *arguments),
            self.coefficients,
            self.resampled,
        )

    @property
    def warnings(self) -> list[str]:
        """What makes its figures doubtful, in plain words."""
        if self.fitted is None:
            caution = PUBLISHED[self.name].caution
            return [caution] if caution else []
        from sparsity.law.identification import at_edge, explain, weaknesses
        from sparsity.law.profile import profiles

        points = self.fitted.points
        return (
            few_values(points)
            + at_edge(points, self.coefficients)
            + explain(weaknesses(profiles(self.fitted, FLAT)), FLAT)
        )

    @property
    def notes(self) -> list[str]:
        """What a reader must know about where the numbers come from."""
        if self.resampled is not None:
            return ["intervals: 5th to 95th percentile over resamples of the points"]
        return ["no interval: published coefficients only; give --points or --runs for one"]


def add_points_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what says which measured points to take and how to fit them."""
    parser.add_argument("--points", type=pathlib.Path, help="CSV of runs: N, S, D, loss")
    parser.add_argument("--runs", type=pathlib.Path, help="folder of finished runs")
    parser.add_argument(
        "--columns",
        action="append",
        default=[],
        metavar="N=NAME",
        help=f"name of a column of the CSV, repeatable: {', '.join(COLUMNS)}",
    )
    parser.add_argument("--family", help="only this family of the points (or published law)")
    parser.add_argument(
        "--residual",
        choices=("raw", "log"),
        help="Huber loss on the loss or on its log (default: as published, else log)",
    )
    parser.add_argument(
        "--delta", type=float, help="where Huber turns linear (default: raw 0.01, log 0.001)"
    )
    parser.add_argument("--starts", type=int, default=100, help="random starts of the fit")
    parser.add_argument("--resamples", type=int, default=200, help="bootstrap resamples")
    parser.add_argument("--seed", type=int, default=0, help="seed of starts and resamples")


def read_points(args: argparse.Namespace) -> list[Points]:
    """Reads the points that the arguments name, one set a family; empty where they name none."""
    for option, value, least in (
        ("starts", args.starts, 1),
        ("resamples", args.resamples, 20),
        ("seed", args.seed, 0),
    ):
        if value < least:
            raise UserError(f"--{option}={value}: give at least {least}.")
    if args.delta is not None and not args.delta > 0:
        raise UserError(f"--delta={args.delta:g}: give a number above 0.")
    if args.points and args.runs:
        raise UserError("--points and --runs: give one of them.")
    if args.runs:
        found = [read_runs(args.runs)]
    elif args.points:
        found = read_csv(args.points, _columns(args.columns))
    else:
        return []
    if args.family is None:
        return found
    chosen = [points for points in found if points.name == args.family]
    if not chosen:
        names = [points.name for points in found]
        raise UserError(
            f"--family={args.family}: no such family in the points."
            f"{did_you_mean(args.family, names)} They have: {', '.join(names)}."
        )
    return chosen


def read_laws(args: argparse.Namespace) -> list[Law]:
    """Returns the laws fitted to the given points, or without any the published ones."""
    measured = read_points(args)
    return [_fitted_law(points, args) for points in measured] or _published_laws(args.family)


def show_notes(law: dict, console: Console) -> None:
    """Prints where a law comes from and what makes its figures doubtful."""
    for warning in law["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {warning}", soft_wrap=True)
    console.print(f"[dim]{law['origin']}; {'; '.join(law['notes'])}[/dim]\n", soft_wrap=True)


def _fitted_law(points: Points, args: argparse.Namespace) -> Law:
    # Fitting imports JAX; asking a published law should not wait for that.
    from sparsity.law.bootstrap import bootstrap
    from sparsity.law.fit import fit, recipe_for
    from sparsity.law.patterns import pattern_worths

    recipe = recipe_for(points.name, args.residual, args.delta, starts=args.starts, seed=args.seed)
    fitted = fit(points, recipe)
    resamples = bootstrap(fitted, args.resamples)
    return Law(
        name=points.name,
        origin=f"fitted to {len(points)} points",
        coefficients=fitted.coefficients,
        resampled=resamples.coefficients,
        largest_size=float(points.size.max()),
        fitted=fitted,
        patterns=tuple(pattern_worths(fitted, resamples)),
    )


def _published_laws(family: str | None) -> list[Law]:
    if family is not None and family not in PUBLISHED:
        raise UserError(
            f"--family={family}: no published law of that name.{did_you_mean(family, PUBLISHED)} "
            f"Published: {', '.join(PUBLISHED)}; or give --points."
        )
    return [
        Law(
            name=name,
            origin=f"{law.title}, published coefficients ({SOURCE})",
            coefficients=law.coefficients,
            resampled=None,
            largest_size=law.largest_size,
            fitted=None,
        )
        for name, law in PUBLISHED.items()
        if family in (None, name)
    ]


def _columns(given: list[str]) -> dict[str, str]:
    columns = {}
    for text in given:
        key, equals, name = text.partition("=")
        if not equals or key not in COLUMNS:
            raise UserError(
                f"--columns={text}: give KEY=NAME with KEY one of {', '.join(COLUMNS)}."
                + did_you_mean(key, COLUMNS)
            )
        columns[key] = name
    return columns
