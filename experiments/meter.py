"""Sums of the training steps, fetched one step late so that the host never holds up the device."""

import math

import jax

from experiments.step import Sums

# Of these the last value counts, not the mean.
_LAST = ("sparsity",)


class NotFinite(Exception):
    """A sum of a training step is NaN or infinite."""

    def __init__(self, step: int, name: str, value: float):
        super().__init__(f"{name} is {value} at step {step}")
        self.step = step
        self.name = name


class Meter:
    """Adds up (sum, count) pairs between two lines of metrics."""

    def __init__(self) -> None:
        self._pending: tuple[int, Sums] | None = None
        self._totals: dict[str, list[float]] = {}

    def hold(self, step: int, sums: Sums) -> None:
        """Takes the sums of a step that is still being computed."""
        self._pending = (step, sums)

    def fetch(self) -> int | None:
        """Fetches what is held and returns its step, None where nothing is; raises NotFinite."""
        if self._pending is None:
            return None
        step, sums = self._pending
        self._pending = None
        for name, (total, count) in jax.device_get(sums).items():
            if not math.isfinite(total):
                raise NotFinite(step, name, float(total))
            into = self._totals.setdefault(name, [0.0, 0.0])
            if name in _LAST:
                into[:] = 0.0, 0.0
            into[0] += float(total)
            into[1] += float(count)
        return step

    def means(self) -> dict[str, float]:
        """Means over the fetched steps since the last call (of sparsity: the last value)."""
        means = {name: total / count for name, (total, count) in self._totals.items()}
        self._totals = {}
        return means
