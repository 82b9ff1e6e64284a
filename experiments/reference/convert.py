"""Seconds on one device turned into seconds on another, by what bounds the program on each.

A device is described by the fixed workloads of `workloads.py`: products bound by arithmetic, passes
over memory, chains of small kernels, exponentials and their like. The cost analysis of a program
says how long it would take here if one of the four alone bounded it (the roofline of Williams,
Waterman and Patterson 2009, with terms for kernels and functions). Each part is converted
by the ratio of its own workloads on the two devices, and what the program takes is converted as the
parts together are.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from experiments.reference.base import Converted, Cost, TimedHere
from models.errors import UserError

# How much the parts overlap: the p of the p-norm that adds them up, from one after the other to
# all at once. Both devices are taken to overlap alike.
_OVERLAPS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, math.inf)
# By how much an overlap between two of these can lie beyond both.
_BETWEEN = 0.005

# A workload whose other parts could take up to this share of its time stands for its kind.
_SMALL_REST = 0.25
# Of any workload its own part takes at least 1 % of the time.
_LARGEST_REST = 0.99

PRODUCT, PASS, CHAIN, FUNCTION = "product", "pass", "chain", "function"
KINDS = (PRODUCT, PASS, CHAIN, FUNCTION)


class Workload(NamedTuple):
    """One fixed workload as a device ran it."""

    kind: str
    # Of the arrays; programs in another type are converted by the workloads of their own.
    dtype: str
    seconds: float
    relative_spread: float
    cost: Cost


class Ratio(NamedTuple):
    """Seconds there over seconds here of one kind of work, over the sizes that count for it."""

    middle: float
    low: float
    high: float


def ratios(
    here: Mapping[str, Workload], there: Mapping[str, Workload], dtype: str
) -> dict[str, Ratio]:
    """The ratio by kind; low and high are over sizes, each with its spread on both devices.

    A product also reads memory, and a pass also starts a kernel. Whether a device hides that is not
    known, so a workload's own work takes between all of its time and what is left without the rest
    of it. Sizes whose rest is small on both devices count; where none is, the one with the least.

    Raises UserError where the devices have no workload of a kind in common.
    """
    common = {kind: [name for name in _of(here, kind, dtype) if name in there] for kind in KINDS}
    for kind, names in common.items():
        if not names:
            raise UserError(
                f"the two devices share no workload of kind {kind} in {dtype}; "
                "measure both with the same version of python -m experiments.calibrate."
            )
    return {kind: _ratio(here, there, names, dtype) for kind, names in common.items()}


def _ratio(
    here: Mapping[str, Workload], there: Mapping[str, Workload], names: list[str], dtype: str
) -> Ratio:
    rest = {name: (_rest(here, name, dtype), _rest(there, name, dtype)) for name in names}
    least = max(min(max(both) for both in rest.values()), _SMALL_REST)
    middles, lows, highs = [], [], []
    for name in names:
        rest_here, rest_there = rest[name]
        if max(rest_here, rest_there) > least:
            continue
        ratio = there[name].seconds / here[name].seconds
        margin = 1 + here[name].relative_spread + there[name].relative_spread
        middles.append(ratio)
        lows.append(ratio * (1 - rest_there) / margin)
        highs.append(ratio / (1 - rest_here) * margin)
    middle = math.exp(statistics.median(math.log(ratio) for ratio in middles))
    return Ratio(middle, min(lows), max(highs))


def _rest(device: Mapping[str, Workload], name: str, dtype: str) -> float:
    """The share of a workload's time that parts of other kinds could take."""
    workload = device[name]
    part = parts(device, workload.cost, dtype)
    rest = sum(part[kind] for kind in KINDS if kind != workload.kind) / workload.seconds
    return min(rest, _LARGEST_REST)


def parts(here: Mapping[str, Workload], cost: Cost, dtype: str) -> dict[str, float]:
    """Seconds that a call would take here if arithmetic, memory or kernels alone bounded it."""

    def best(kind: str, amount: str) -> float:
        names = _of(here, kind, dtype)
        return max(getattr(here[name].cost, amount) / here[name].seconds for name in names)

    return {
        PRODUCT: cost.flops / best(PRODUCT, "flops"),
        PASS: cost.bytes / best(PASS, "bytes"),
        CHAIN: cost.kernels / best(CHAIN, "kernels"),
        FUNCTION: cost.functions / best(FUNCTION, "functions"),
    }


def _of(workloads: Mapping[str, Workload], kind: str, dtype: str) -> list[str]:
    found = [name for name, one in workloads.items() if one.kind == kind and one.dtype == dtype]
    # Passes and chains are measured in float32 alone: bytes and kernels are what they are.
    return found or [
        name
        for name, one in workloads.items()
        if kind != PRODUCT and one.kind == kind and one.dtype == "float32"
    ]


def convert(
    here: Mapping[str, Workload],
    there: Mapping[str, Workload],
    timed: TimedHere,
    cost: Cost,
    dtype: str,
) -> Converted:
    """Seconds there of a call that takes `timed` here and does `cost`.

    The middle takes the parts one after the other. The interval holds every overlap of them, each
    ratio at either end of its own range, and the spread of the time here. Where the parts explain
    less than the time here (a loop's body is counted once), the rest may be of any kind, and where
    they explain more, or one hides another, any one may be counted too high (bytes that stay in a
    cache).
    """
    ratio = ratios(here, there, dtype)
    part = parts(here, cost, dtype)
    if not sum(part.values()):
        raise UserError("the cost analysis of the program is empty; it cannot be converted.")
    used = [kind for kind in KINDS if part[kind] > 0]

    def share(assumed: Mapping[str, float], overlap: float, end: str) -> float:
        """Time there over time here at one overlap, every ratio at its low or high end."""
        explained = _norm(assumed.values(), overlap)
        rest = max(1 - explained / timed.seconds, 0.0)
        each = {kind: getattr(ratio[kind], end) for kind in used}
        there_s = _norm((assumed[kind] * each[kind] for kind in used), overlap)
        extreme = min(each.values()) if end == "low" else max(each.values())
        return (1 - rest) * there_s / explained + rest * extreme

    cases = [
        (assumed, overlap)
        for overlap in _OVERLAPS
        for assumed in (part, *_with_one_part_less(part, timed.seconds, overlap))
    ]
    middle = _sum(part, {kind: ratio[kind].middle for kind in KINDS}) / sum(part.values())
    low = min(middle, *(share(*case, "low") for case in cases))
    high = max(middle, *(share(*case, "high") for case in cases))
    total = sum(part.values())
    mix = ", ".join(f"{100 * part[kind] / total:.0f} % {_WORDS[kind]}" for kind in used)
    each = ", ".join(f"{_WORDS[kind]} × {ratio[kind].middle:.3g}" for kind in used)
    return Converted(
        seconds=timed.seconds * middle,
        low=timed.seconds * low * (1 - timed.relative_spread - _BETWEEN),
        high=timed.seconds * high * (1 + timed.relative_spread + _BETWEEN),
        how=f"converted from {timed.seconds:.3g} s here: {mix} by cost analysis; {each}",
    )


_WORDS = {PRODUCT: "arithmetic", PASS: "memory", CHAIN: "small kernels", FUNCTION: "functions"}


def _norm(values: Iterable[float], p: float) -> float:
    values = list(values)
    highest = max(values)
    if math.isinf(p) or not highest:
        return highest
    return highest * sum((value / highest) ** p for value in values) ** (1 / p)


def _sum(part: Mapping[str, float], ratio: Mapping[str, float]) -> float:
    return sum(part[kind] * ratio[kind] for kind in KINDS)


def _with_one_part_less(
    part: Mapping[str, float], seconds: float, overlap: float
) -> Iterator[dict[str, float]]:
    """The parts with each one in turn cut to the least with which they still explain as much.

    That is no more than `seconds`; where parts are hidden by a larger one, they may be nothing.
    """
    explained = min(_norm(part.values(), overlap), seconds)
    for kind in KINDS:
        others = _norm((part[other] for other in KINDS if other != kind), overlap)
        if math.isinf(overlap):
            left = explained if others < explained else 0.0
        else:
            # In units of what is explained, so that no power overflows.
            left = explained * max(1 - (others / explained) ** overlap, 0.0) ** (1 / overlap)
        if max(others, left) > 0:
            yield {**part, kind: min(left, part[kind])}
