"""Times functions in turn, so that what else the machine does meets all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

# A timed block of calls takes about this long.
_BLOCK_S = 0.02

Call = Callable[[], Any]


def interleave(
    calls: Mapping[str, Call], seconds: float, rounds: int = 7
) -> dict[str, list[float]]:
    """Returns seconds per call of each, one value a round.

    Rounds are at least `rounds`, and go on for `seconds` in all; in each, every function is called
    in a block of its own. Two blocks before that warm up.
    """
    repeats = {name: _repeats(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    while min(map(len, times.values())) < rounds or time.perf_counter() - begun < seconds:
        for name, call in calls.items():
            times[name].append(_block(call, repeats[name]))
    return times


def ratio(times: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """Returns how many times longer one takes than the other: the median over rounds."""
    pairs = zip(times[slow], times[fast], strict=True)
    return statistics.median(a / b for a, b in pairs)


def _repeats(call: Call) -> int:
    _block(call, 1)
    return max(1, round(_BLOCK_S / max(_block(call, 1), 1e-7)))


def _block(call: Call, repeats: int) -> float:
    begun = time.perf_counter()
    for _ in range(repeats):
        result = call()
    jax.block_until_ready(result)
    return (time.perf_counter() - begun) / repeats
