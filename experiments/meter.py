"""Sums of the training steps, fetched late so that the host never holds up the device."""

import math

import jax

from experiments.step import Sums

# Steps that are given to the device ahead of the fetch. The host wakes once for all of them: where
# it shares the cores with the device, waking for each costs 1 ms a step. More would make a run that
# is told to stop wait longer for what it has begun.
AHEAD = 4
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
        self._held: list[tuple[int, Sums]] = []
        self._totals: dict[str, list[float]] = {}

    @property
    def full(self) -> bool:
        """Whether as much is held as should be before it is fetched."""
        return len(self._held) >= AHEAD

    def hold(self, step: int, sums: Sums) -> None:
        """Takes the sums of a step that is still being computed."""
        self._held.append((step, sums))

    def fetch(self) -> int | None:
        """Fetches what is held; returns its last step, None where nothing is; raises NotFinite."""
        if not self._held:
            return None
        steps, held = zip(*self._held, strict=True)
        self._held = []
        for step, sums in zip(steps, jax.device_get(held), strict=True):
            for name, (total, count) in sums.items():
                if not math.isfinite(total):
                    raise NotFinite(step, name, float(total))
                into = self._totals.setdefault(name, [0.0, 0.0])
                if name in _LAST:
                    into[:] = 0.0, 0.0
                into[0] += float(total)
                into[1] += float(count)
        return steps[-1]

    def means(self) -> dict[str, float]:
        """Means over the fetched steps since the last call (of sparsity: the last value)."""
        means = {name: total / count for name, (total, count) in self._totals.items()}
        self._totals = {}
        return means
