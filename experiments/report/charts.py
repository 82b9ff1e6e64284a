"""The plots of a page as Vega-Lite specifications; legends and titles are the page's own text."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

# Told apart by readers who see few colours, and legible on white and on near-black.
PALETTE = (
    "#3a7fc1", "#d9772b", "#2c9a76", "#b4589f", "#8a7bd0", "#b08d1f", "#4aa3b8", "#c2566a",
    "#7d9a3c", "#8c6d5a",
)  # fmt: skip
# The baseline is what others are seen against.
BASELINE = "#858b94"
ACCOUNTS = {
    "train": "#3a7fc1",
    "evaluate": "#2c9a76",
    "checkpoint": "#b08d1f",
    "profile": "#b4589f",
    "compile": "#d9772b",
    "measure": "#8a7bd0",
    "prepare": "#4aa3b8",
    "start": "#858b94",
}
_OTHER = "#c2566a"
_AXES = {
    "rst_s": "reference-system time, s",
    "step": "steps",
    "tokens": "tokens",
    "wall_s": "training wall time, s",
}
# How tall one row of a plot of rows is, in pixels.
_ROW = 46

Rows = Sequence[Mapping[str, Any]]


def axes() -> dict[str, str]:
    """What the horizontal axis of loss curves can show: field → name."""
    return dict(_AXES)


def colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label, in turns where there are more labels than colours."""
    return {label: PALETTE[index % len(PALETTE)] for index, label in enumerate(labels)}


def loss_curves(rows: Rows, palette: Mapping[str, str], first_axis: str = "rst_s") -> dict:
    """Mean loss of each arm with a band from its lowest to its highest seed.

    Rows hold arm, the fields of `axes()`, loss, low and high.
    """
    axis = alt.param(name="axis", value=first_axis)
    base = (
        alt.Chart(alt.Data(values=list(rows)))
        .transform_calculate(x="datum[axis]")
        .encode(
            x=alt.X("x:Q", title=None, axis=alt.Axis(tickCount=6, format="~s"), scale=_tight(0)),
            color=_colour("arm", palette),
        )
    )
    tooltip = [
        alt.Tooltip("arm:N", title="runs"),
        alt.Tooltip("loss:Q", format=".4f"),
        alt.Tooltip("low:Q", format=".4f", title="lowest seed"),
        alt.Tooltip("high:Q", format=".4f", title="highest seed"),
        alt.Tooltip("seeds:Q"),
        alt.Tooltip("step:Q", format=",", title="steps"),
        alt.Tooltip("rst_s:Q", format=".4~g", title="RST, s"),
        alt.Tooltip("tokens:Q", format=".4~s"),
        alt.Tooltip("wall_s:Q", format=".4~g", title="wall, s"),
    ]
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", encodings=["x", "y"],
        empty=False,
    )  # fmt: skip
    scale = alt.Scale(zero=False, nice=False, domain=_loss_range(rows))
    y = alt.Y("loss:Q", title=None, scale=scale, axis=alt.Axis(tickCount=6))
    band = base.mark_area(opacity=0.18, clip=True).encode(
        y=alt.Y("low:Q", scale=scale), y2="high:Q"
    )
    line = base.mark_line(strokeWidth=2.25, clip=True).encode(y=y)
    dots = (
        base.mark_circle(size=70, clip=True)
        .encode(y=y, opacity=alt.condition(near, alt.value(1), alt.value(0.001)), tooltip=tooltip)
        .add_params(near)
    )
    return _spec(alt.layer(band, line, dots).add_params(axis), height=320)


def _loss_range(rows: Rows) -> list[float]:
    """From the lowest loss to the highest after a tenth of the run: what comes before is steep."""
    last = max((row["rst_s"] for row in rows), default=0)
    late = [row for row in rows if row["rst_s"] >= last / 10] or list(rows)
    low = min((row["low"] for row in rows), default=0.0)
    high = max((row["high"] for row in late), default=1.0)
    room = 0.04 * (high - low) or 0.1
    return [low - room, high + room]


def differences(rows: Rows, palette: Mapping[str, str], margin: float | None) -> dict:
    """How much better each method is than the baseline: intervals beside zero and the margin.

    Rows hold arm, difference, low, high, boot_low, boot_high, in nats.
    """
    order = [row["arm"] for row in rows]
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        y=alt.Y("arm:N", sort=order, axis=None), color=_colour("arm", palette)
    )
    ends = [row[name] for row in rows for name in ("low", "high", "boot_low", "boot_high")]
    ends += [0.0] if margin is None else [-margin, margin]
    room = 0.2 * (max(ends) - min(ends))
    scale = alt.Scale(domain=[min(ends) - room, max(ends) + room], nice=False)
    x = alt.X("low:Q", title=None, scale=scale, axis=alt.Axis(tickCount=6, format="+.3~f"))
    tooltip = [
        alt.Tooltip("arm:N", title="method"),
        alt.Tooltip("verdict:N"),
        alt.Tooltip("difference:Q", format="+.4f", title="better by, nats"),
        alt.Tooltip("low:Q", format="+.4f", title="t, from"),
        alt.Tooltip("high:Q", format="+.4f", title="t, to"),
        alt.Tooltip("boot_low:Q", format="+.4f", title="bootstrap, from"),
        alt.Tooltip("boot_high:Q", format="+.4f", title="bootstrap, to"),
    ]
    layers: list[Any] = []
    if margin is not None:
        zone = alt.Chart(alt.Data(values=[{"from": -margin, "to": margin}]))
        layers.append(
            zone.mark_rect(color="currentColor", opacity=0.07).encode(x="from:Q", x2="to:Q")
        )
    zero = alt.Chart(alt.Data(values=[{"zero": 0}]))
    layers += [
        zero.mark_rule(color="currentColor", strokeWidth=1.25, opacity=0.75).encode(x="zero:Q"),
        base.mark_rule(strokeWidth=7, opacity=0.25).encode(x="boot_low:Q", x2="boot_high:Q"),
        base.mark_rule(strokeWidth=2.5).encode(x=x, x2="high:Q", tooltip=tooltip),
        base.mark_circle(size=110, opacity=1).encode(x="difference:Q", tooltip=tooltip),
        _row_names(base),
    ]
    return _spec(alt.layer(*layers), height=max(1, len(order)) * (_ROW + 8))


def time_bars(rows: Rows) -> dict:
    """Where wall time went: a bar for each arm, in parts. Rows hold arm, account and seconds."""
    known = list(ACCOUNTS) + sorted({row["account"] for row in rows} - ACCOUNTS.keys())
    palette = {name: ACCOUNTS.get(name, _OTHER) for name in known}
    order = list(dict.fromkeys(row["arm"] for row in rows))
    values = [row | {"rank": known.index(row["account"])} for row in map(dict, rows)]
    base = alt.Chart(alt.Data(values=values)).encode(y=alt.Y("arm:N", sort=order, axis=None))
    bars = base.mark_bar(height=16, stroke=None).encode(
        x=alt.X("seconds:Q", title=None, stack="zero", axis=alt.Axis(tickCount=6)),
        color=_colour("account", palette),
        order="rank:Q",
        tooltip=[
            alt.Tooltip("arm:N", title="runs"),
            alt.Tooltip("account:N"),
            alt.Tooltip("seconds:Q", format=".2f", title="seconds, mean"),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )
    names = base.transform_filter("datum.first")
    return _spec(alt.layer(bars, _row_names(names)), height=max(1, len(order)) * _ROW)


def sparsity_bars(rows: Rows) -> dict:
    """Sparsity reached, and asked where it was. Rows hold path, reached, asked and weights."""
    base = alt.Chart(alt.Data(values=list(rows))).encode(y=alt.Y("path:N", sort=None, axis=None))
    tooltip = [
        alt.Tooltip("path:N", title="weights"),
        alt.Tooltip("reached:Q", format=".3%"),
        alt.Tooltip("asked:Q", format=".3%"),
        alt.Tooltip("weights:Q", format=","),
    ]
    percent = alt.Axis(format=".0%", tickCount=5)
    scale = alt.Scale(domain=[0, 1])
    bars = base.mark_bar(height=7, color=PALETTE[0]).encode(
        x=alt.X("reached:Q", title=None, axis=percent, scale=scale), tooltip=tooltip
    )
    asked = base.mark_tick(color="currentColor", thickness=1.5, height=13).encode(x="asked:Q")
    return _spec(alt.layer(bars, asked, _row_names(base, "path", 11)), height=len(rows) * 30)


def profiles(rows: Rows, palette: Mapping[str, str]) -> dict:
    """Performance profiles: the share of workloads done within τ times the reference's time."""
    chart = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_line(interpolate="step-after", strokeWidth=2.25)
        .encode(
            x=alt.X("tau:Q", title=None, scale=_tight(0), axis=alt.Axis(tickCount=6)),
            y=alt.Y("share:Q", title=None, axis=alt.Axis(format=".0%", tickCount=5),
                    scale=alt.Scale(domain=[0, 1])),
            color=_colour("method", palette),
            tooltip=["method:N", alt.Tooltip("tau:Q", format=".3f"),
                     alt.Tooltip("share:Q", format=".0%")],
        )
    )  # fmt: skip
    return _spec(chart, height=220)


def _row_names(base: alt.Chart, field: str = "arm", size: int = 12) -> alt.Chart:
    """Names above their rows, so that they may be long on a narrow screen."""
    return base.mark_text(
        align="left", baseline="bottom", dy=-8 if size == 11 else -12, fontSize=size
    ).encode(x=alt.value(0), text=f"{field}:N", color=alt.value("currentColor"))


def _colour(field: str, palette: Mapping[str, str]) -> alt.Color:
    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    return alt.Color(f"{field}:N", scale=scale, legend=None)


def _tight(padding: float) -> alt.Scale:
    return alt.Scale(zero=False, nice=False, padding=padding)


def _spec(chart: Any, height: float) -> dict[str, Any]:
    """The specification: as wide as the page, in the colour of its text."""
    font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
    styled = (
        chart.properties(width="container", height=height, background="transparent")
        .configure(font=font, padding={"left": 2, "right": 12, "top": 8, "bottom": 4})
        .configure_view(stroke=None)
        .configure_axis(
            labelColor="currentColor",
            labelOpacity=0.72,
            labelFontSize=12,
            labelFlush=False,
            grid=True,
            gridColor="currentColor",
            gridOpacity=0.12,
            domain=False,
            ticks=False,
            labelPadding=6,
        )
    )
    return styled.to_dict()
