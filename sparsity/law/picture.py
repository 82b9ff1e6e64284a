"""Draws the contours of the best sparsity over training FLOPs and non-zero weights."""

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sparsity.law.accounting import ACCOUNTINGS, training_flops
from sparsity.law.contours import Contour
from sparsity.law.estimate import short
from sparsity.law.points import Points

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#333333",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": "#222222",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "svg.fonttype": "none",
}
_TITLES = {"skipped": "Hardware that skips zeros", "computed": "Hardware that computes zeros"}
_DENSE = "#222222"
_POINT = "#7a7a7a"
_CAUTION = "#b3261e"
# Nobody trains for longer than this multiple of the dense optimum; the picture ends there.
_FARTHEST_MULTIPLE = 100.0
_BAND_MULTIPLES = (0.03, 3e3)


def draw_contours(
    lines: list[Contour], title: str, points: Points | None, stem: pathlib.Path, caution: str = ""
) -> None:
    """Draws a column an accounting and writes PNG and SVG; `caution` stands under the title.

    Above, all lines together over the measured points; below, where there are resamples, each line
    alone with its 5 to 95 % band, since wide bands over one another cannot be read.
    """
    has_bands = all(np.isfinite(line.low).all() for line in lines)
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(12, 9.0 if has_bands else 5.8), layout="constrained")
        figure.suptitle(title, x=0.008, ha="left", fontsize=13, fontweight="bold")
        if caution:
            # Constrained layout gives room to labels, not to texts.
            figure.supxlabel(caution, x=0.008, ha="left", fontsize=10, color=_CAUTION)
        columns = figure.subfigures(1, len(ACCOUNTINGS), wspace=0.02, squeeze=False)[0]
        for column, accounting in zip(columns, ACCOUNTINGS, strict=True):
            panel = [line for line in lines if line.accounting == accounting]
            _draw_column(column, panel, points, accounting, has_bands)
        save(figure, stem)


def save(figure: Figure, stem: pathlib.Path) -> None:
    """Writes a figure as PNG and SVG and lets go of it."""
    for suffix in (".png", ".svg"):
        figure.savefig(stem.with_name(stem.name + suffix), dpi=160)
    plt.close(figure)


def _draw_column(
    column: SubFigure,
    panel: list[Contour],
    points: Points | None,
    accounting: str,
    has_bands: bool,
) -> None:
    dense, *levels = panel
    colours = plt.get_cmap("viridis")(np.linspace(0.72, 0.06, len(levels)))
    grid = column.add_gridspec(
        2 if has_bands else 1, len(levels), height_ratios=(2.0, 1.0)[: 1 + has_bands]
    )
    top = column.add_subplot(grid[0, :])
    cost = None
    if points is not None:
        cost = training_flops(points.sparsity, points.size, points.data, accounting)
    _frame(top, dense, cost)
    _draw_lines(top, dense, levels, colours)
    if points is not None and cost is not None:
        top.scatter(cost, points.size, s=11, color=_POINT, linewidth=0, zorder=3, label="runs")
    top.set_title(_TITLES[accounting])
    top.set_xlabel("pre-training FLOPs")
    top.set_ylabel("non-zero parameters")
    top.legend(loc="upper left", frameon=False, fontsize=9, handlelength=1.6, labelspacing=0.35)
    if not has_bands:
        return
    for index, (line, colour) in enumerate(zip(levels, colours, strict=True)):
        small = column.add_subplot(grid[1, index])
        _draw_band(small, dense, line, colour)
        small.tick_params(labelsize=8, labelleft=index == 0)
    column.supxlabel(
        "FLOPs where it is best over the fitted dense optimum, with 90 % band",
        fontsize=9,
        color="#333333",
    )


def _frame(axis: Axes, dense: Contour, cost: np.ndarray | None) -> None:
    axis.set(xscale="log", yscale="log")
    axis.set_ylim(dense.size[0], dense.size[-1])
    cheapest = dense.compute[0] if cost is None else min(dense.compute[0], float(np.min(cost)))
    axis.set_xlim(cheapest / 4.0, dense.compute[-1] * _FARTHEST_MULTIPLE)
    axis.grid(which="major", color="#ececec", linewidth=0.7)
    axis.tick_params(which="minor", length=0)
    axis.set_axisbelow(True)


def _draw_lines(axis: Axes, dense: Contour, levels: list[Contour], colours: np.ndarray) -> None:
    right = np.full(len(dense.size), axis.get_xlim()[1])
    ends = [line.compute for line in levels[1:]] + [right]
    for line, end, colour in zip(levels, ends, colours, strict=True):
        axis.fill_betweenx(line.size, line.compute, end, color=colour, alpha=0.16, linewidth=0)
    axis.plot(dense.compute, dense.size, color=_DENSE, linewidth=2.2, label="dense optimal")
    for line, colour in zip(levels, colours, strict=True):
        label = f"{100 * line.sparsity:g} % sparse is best"
        if line.compute[0] > right[0]:
            label += " (further right)"
        axis.plot(line.compute, line.size, color=colour, linewidth=2.2, label=label)


def _draw_band(axis: Axes, dense: Contour, line: Contour, colour: np.ndarray) -> None:
    """Draws a line and its band relative to the dense optimum, where both become visible."""
    best, low, high = (flops / dense.compute for flops in (line.compute, line.low, line.high))
    axis.fill_betweenx(line.size, low, high, color=colour, alpha=0.35, linewidth=0)
    axis.plot(best, line.size, color=colour, linewidth=1.8)
    axis.axvline(1.0, color=_DENSE, linewidth=1.0, linestyle=(0, (4, 2)))
    axis.set(xscale="log", yscale="log", xlim=_BAND_MULTIPLES)
    axis.set_ylim(dense.size[0], dense.size[-1])
    axis.grid(which="major", color="#ececec", linewidth=0.7)
    axis.tick_params(which="minor", length=0)
    axis.set_title(f"{100 * line.sparsity:g} %: {short(float(best[0]), 2)}×", fontsize=9.5)
