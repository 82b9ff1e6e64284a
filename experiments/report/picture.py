"""The verdicts of a comparison as one picture, for a paper or a README."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import vl_convert

from experiments.comparison import text
from experiments.comparison.compare import Block, Comparison, Result, short_name
from experiments.comparison.verdict import Kind
from experiments.report.bundle import VEGA_LITE
from models.errors import UserError

# Told apart by shape as well as by colour.
_LOOKS = {
    Kind.GAIN: ("#1a7f4b", "triangle-up"),
    Kind.NO_GAIN: ("#4a525c", "square"),
    Kind.LOSS: ("#b3362b", "triangle-down"),
    Kind.CANNOT_TELL: ("#c08a1e", "circle"),
}
_KINDS = [str(kind) for kind in _LOOKS]
_COLOUR = alt.Color(
    "verdict:N", scale=alt.Scale(domain=_KINDS, range=[colour for colour, _ in _LOOKS.values()])
)
_SHAPE = alt.Shape(
    "verdict:N", scale=alt.Scale(domain=_KINDS, range=[shape for _, shape in _LOOKS.values()])
)
_INK, _SOFT = "#1b1f24", "#59616b"
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
# Pixels, before they are doubled: all panels of a row together, and a method's row.
_WIDTH, _ROW = 720, 30
_MOST_PANELS_A_ROW = 3
# A panel reaches so many times the typical difference; what lies farther off is an arrow.
_REACH = 4.0


def check_picture(path: pathlib.Path) -> None:
    """Raises UserError for a file that cannot be drawn to."""
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--picture {path}: write a name that ends in .png or .svg.")


def write_picture(path: pathlib.Path, comparison: Comparison) -> None:
    """Draws every method at every budget: its difference, interval and verdict."""
    spec = picture(comparison)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".svg":
        path.write_text(vl_convert.vegalite_to_svg(spec, VEGA_LITE))
    else:
        path.write_bytes(vl_convert.vegalite_to_png(spec, VEGA_LITE, scale=2))


def picture(comparison: Comparison) -> dict[str, Any]:
    """The picture's Vega-Lite specification: a panel for each baseline and budget."""
    blocks = comparison.blocks
    order = _order(blocks)
    columns = min(len(blocks), _MOST_PANELS_A_ROW)
    baselines = list(dict.fromkeys(block.baseline.label for block in blocks))
    panels = [
        _panel(
            block,
            order,
            names=index % columns == 0,
            title=_heading(block, several=len(baselines) > 1),
            width=_WIDTH / columns,
        )
        for index, block in enumerate(blocks)
    ]
    coverage = 100 - 100 * comparison.options.level
    title = alt.TitleParams(
        f"How much better than {' or '.join(baselines)}, in nats of validation loss",
        subtitle=[
            f"The same budget for all. Lines: {coverage:g} % intervals, each by itself; verdicts "
            "are corrected for the number of methods.",
            f"Grey zone: worth less than {comparison.options.margin}.",
        ],
        anchor="start",
        fontSize=16,
        subtitleFontSize=12,
        color=_INK,
        subtitleColor=_SOFT,
        subtitleLineHeight=16,
        offset=12,
    )
    chart = (
        alt.concat(*panels, columns=columns, spacing=22)
        .properties(title=title, background="white", padding=14)
        .resolve_scale(y="shared", color="shared", shape="shared")
        .configure(font=_FONT)
        .configure_view(stroke=None)
        .configure_axis(domain=False, ticks=False, labelColor=_SOFT, labelFontSize=12)
        .configure_legend(
            orient="top", title=None, labelFontSize=13, labelColor=_INK, symbolSize=110,
            columnPadding=22,
        )
    )  # fmt: skip
    spec: dict[str, Any] = chart.to_dict()
    return spec


def _order(blocks: Sequence[Block]) -> list[str]:
    """Methods from the best to the worst at the longest budget that they were run with."""
    last: dict[str, float] = {}
    for block in sorted(blocks, key=lambda block: block.budget_s):
        for result in block.results:
            found = result.estimate.difference if result.estimate else -math.inf
            last[_name(result)] = found
    return sorted(last, key=lambda name: -last[name])


def _name(result: Result) -> str:
    return short_name(result.method.label)


def _heading(block: Block, several: bool) -> str:
    budget = text.budget_text(block.baseline.conditions.budget)
    seeds = text.seeds_text(block.baseline.runs)
    return f"{block.baseline.label}, {budget}, {seeds}" if several else f"{budget}, {seeds}"


def _panel(block: Block, order: list[str], names: bool, title: str, width: float) -> Any:
    low, high = _range(block)
    rows = [_row(result, low, high) for result in block.results]
    base = alt.Chart(alt.Data(values=rows))
    axis = alt.Axis(
        labels=names, labelFontSize=13, labelColor=_INK, labelLimit=220, labelPadding=10, grid=True,
        gridColor="#eceef1",
    )  # fmt: skip
    y = alt.Y("method:N", sort=order, scale=alt.Scale(domain=order), title=None, axis=axis)
    x_axis = alt.Axis(
        tickCount=4, labelExpr="datum.value == 0 ? '0' : format(datum.value, '+.2~f')", grid=False,
        title="← worse\u2003better →", titleColor=_SOFT, titleFontSize=12,
        titleFontWeight="normal",
    )  # fmt: skip
    scale = alt.Scale(domain=[low, high], nice=False)
    x = alt.X("from:Q", title="", scale=scale, axis=x_axis)
    layers: list[Any] = []
    if block.margin.known:
        ends = {"from": max(low, -block.margin.loss), "to": min(high, block.margin.loss)}
        zone = alt.Chart(alt.Data(values=[ends]))
        layers.append(zone.mark_rect(color="#000", opacity=0.09).encode(x=x, x2="to:Q"))
    zero = alt.Chart(alt.Data(values=[{"from": 0}]))
    inside = base.transform_filter("datum.shown == 'point'")
    left = base.transform_filter("datum.shown == 'left'")
    right = base.transform_filter("datum.shown == 'right'")
    words = base.transform_filter("datum.shown == 'words'")
    layers += [
        zero.mark_rule(color=_INK, strokeWidth=1.2).encode(x=x),
        base.transform_filter("datum.to > datum.from")
        .mark_rule(strokeWidth=3, opacity=0.75)
        .encode(x=x, x2="to:Q", y=y, color=_COLOUR),
        inside.mark_point(filled=True, opacity=1, size=120).encode(
            x="at:Q", y=y, color=_COLOUR, shape=_SHAPE
        ),
        _off(left, y, alt.value(0), "left", 12),
        _off(right, y, alt.value(width), "right", -12),
        words.mark_text(align="left", fontSize=12, dx=4).encode(
            x=alt.value(0), y=y, text="label:N", color=_COLOUR
        ),
    ]
    return alt.layer(*layers).properties(
        width=width,
        height=_ROW * len(order),
        title=alt.TitleParams(title, anchor="start", fontSize=13, color=_INK),
    )


def _off(base: alt.Chart, y: alt.Y, x: Any, side: Literal["left", "right"], shift: int) -> Any:
    """An arrow at the panel's edge, and how far off the point is."""
    arrow = base.mark_point(filled=True, opacity=1, size=110, shape=f"triangle-{side}")
    label = base.mark_text(align=side, dx=shift, fontSize=12)
    return alt.layer(
        arrow.encode(x=x, y=y, color=_COLOUR), label.encode(x=x, y=y, color=_COLOUR, text="label:N")
    )


def _range(block: Block) -> tuple[float, float]:
    """What a panel shows: zero, the margin, and all that is not far off."""
    found = [(r.estimate.difference, *r.t_interval) for r in block.results if r.estimate]
    margin = block.margin.loss if block.margin.known else 0.0
    sizes = sorted(abs(difference) for difference, _, _ in found)
    reach = max(_REACH * sizes[len(sizes) // 2] if sizes else 0.0, 2 * margin) or 1.0
    low = max(min([-2 * margin, *(low for _, low, _ in found)]), -reach)
    high = min(max([2 * margin, *(high for _, _, high in found)]), reach)
    room = 0.04 * (high - low)
    return low - room, high + room


def _row(result: Result, low: float, high: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "method": _name(result),
        "verdict": str(result.verdict.kind),
        "from": 0.0,
        "to": 0.0,
        "at": 0.0,
        "label": "",
    }
    if result.estimate is None:
        diverged = len(result.method.diverged)
        why = f"{diverged} of {len(result.method.runs)} diverged" if diverged else "too few seeds"
        return row | {"shown": "words", "label": why}
    at = result.estimate.difference
    shown = "left" if at < low else "right" if at > high else "point"
    start, end = (min(max(value, low), high) for value in result.t_interval)
    # An arrow with its figure stands where the line would be.
    if shown != "point":
        start = end = 0.0
    return row | {"shown": shown, "from": start, "to": end, "at": at, "label": text.signed(at, 2)}
