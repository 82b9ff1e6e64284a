"""Repeats of a traced window of calls, until their median is stable."""

import dataclasses
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

import jax

from experiments.reference.workloads import Job
from experiments.window import StepTime, time_steps

# A window takes about this many seconds, within these numbers of calls.
_WINDOW_S = 0.3
_CALLS = (6, 200)
_WARMUP_CALLS = 2
# Windows are repeated until the 95 % interval of their median is within this share of it on
# either side, between these numbers of repeats.
_STABLE = 0.02
_REPEATS = (5, 15)

RULE = (
    f"windows of {_WINDOW_S} s ({_CALLS[0]} to {_CALLS[1]} calls), each the mean period in an "
    f"XProf trace; repeated {_REPEATS[0]} to {_REPEATS[1]} times, until the 95 % interval of their "
    f"median is within {100 * _STABLE:.0f} %"
)


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Seconds of one call, from the windows that were measured."""

    seconds: float
    # Half the interquartile range of the windows over their median.
    relative_spread: float
    repeats: int
    stable: bool


def measure(job: Job) -> Repeats:
    """Times a job on this device."""
    state = jax.block_until_ready(job.run(job.state, 0))
    begun = time.perf_counter()
    state = jax.block_until_ready(job.run(state, 1))
    once_s = time.perf_counter() - begun
    calls = min(max(math.ceil(_WINDOW_S / once_s), _CALLS[0]), _CALLS[1])

    def window() -> StepTime:
        nonlocal state
        with tempfile.TemporaryDirectory(prefix="kpd-trace-") as folder:
            state, timed = time_steps(
                job.run, state, calls, _WARMUP_CALLS, pathlib.Path(folder), job.module
            )
        return timed

    return until_stable(lambda: window().best)


def until_stable(window: Callable[[], float]) -> Repeats:
    """Repeats a measurement by the rule above and takes its median."""
    low, high = _REPEATS
    values: list[float] = []
    while len(values) < high:
        values.append(window())
        if len(values) >= low and is_stable(values):
            break
    middle = statistics.median(values)
    quarter, _, three_quarters = statistics.quantiles(values, n=4, method="inclusive")
    return Repeats(
        seconds=middle,
        relative_spread=(three_quarters - quarter) / 2 / middle,
        repeats=len(values),
        stable=is_stable(values),
    )


def is_stable(values: list[float]) -> bool:
    """Whether the median of so many values is known to within the rule's share of it.

    The interval is the one of a sign test: between the order statistics that hold the median with
    at least 95 % (93.75 % for five values, of which it takes all).
    """
    ordered, middle = sorted(values), statistics.median(values)
    outside = _outside(len(ordered))
    lowest, highest = ordered[outside], ordered[-1 - outside]
    return highest - middle <= _STABLE * middle and middle - lowest <= _STABLE * middle


def _outside(count: int) -> int:
    """How many values may be left off at each end of a 95 % interval of the median."""
    left_off, tail = 0, 0.5**count
    while 2 * (tail + math.comb(count, left_off + 1) * 0.5**count) <= 0.05:
        left_off += 1
        tail += math.comb(count, left_off) * 0.5**count
    return left_off
