"""The derived figures that people quote, each a function of the coefficients."""

import dataclasses
from collections.abc import Callable

from models.errors import UserError, did_you_mean
from sparsity.law.form import Coefficients, Numeric, equivalent_size
from sparsity.law.optimal import chinchilla_multiple


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """A derived figure; `value` takes floats, resamples or traced arrays alike."""

    # How it is called on the command line.
    name: str
    # What it means, for tables.
    title: str
    # Its value for given coefficients.
    value: Callable[[Coefficients], Numeric]


def _equivalent(percent: float) -> Figure:
    return Figure(
        name=f"equivalent_{percent:g}",
        title=f"dense weights worth one non-zero at {percent:g} %",
        value=lambda coefficients: equivalent_size(coefficients, percent / 100.0),
    )


def _multiple(percent: float, accounting: str) -> Figure:
    return Figure(
        name=f"{accounting}_{percent:g}",
        title=f"Chinchilla multiple for {percent:g} %, zeros {accounting}",
        value=lambda coefficients: chinchilla_multiple(coefficients, percent / 100.0, accounting),
    )


FIGURES = {
    figure.name: figure
    for figure in (
        _equivalent(50),
        _equivalent(75),
        _equivalent(87.5),
        _multiple(50, "skipped"),
        _multiple(75, "skipped"),
        _multiple(50, "computed"),
        _multiple(75, "computed"),
    )
}


def figure_named(name: str) -> Figure:
    """Returns the figure of that name; raises UserError naming the nearest one."""
    if name not in FIGURES:
        raise UserError(
            f"figure {name!r}: no such figure.{did_you_mean(name, FIGURES)} "
            f"Known: {', '.join(FIGURES)}."
        )
    return FIGURES[name]
