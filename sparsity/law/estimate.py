"""A number with its interval, and how it is written for people."""

import dataclasses
import math
from collections.abc import Callable
from typing import Self

import numpy as np

from sparsity.law.form import Coefficients, Numeric


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure and, where points were resampled, its 5th, 50th and 95th percentile."""

    # At the fitted (or published) coefficients.
    value: float
    # Over the resamples; None where there are none.
    low: float | None = None
    median: float | None = None
    high: float | None = None

    @classmethod
    def of(
        cls,
        figure: Callable[[Coefficients], Numeric],
        coefficients: Coefficients,
        resampled: Coefficients | None,
    ) -> Self:
        """Evaluates a figure at the coefficients and over their resamples."""
        value = float(figure(coefficients))
        return cls(value=value) if resampled is None else cls.over(value, figure(resampled))

    @classmethod
    def over(cls, value: float, resampled: np.ndarray) -> Self:
        """Returns a value with the percentiles of its resamples."""
        low, median, high = percentiles(resampled)
        return cls(value=float(value), low=float(low), median=float(median), high=float(high))

    def text(self, scale: float = 1.0, digits: int = 3) -> str:
        """Returns `value [low, high]`, each times `scale`, to so many significant digits."""
        value = short(self.value * scale, digits)
        if self.low is None or self.high is None:
            return value
        return f"{value} [{short(self.low * scale, digits)}, {short(self.high * scale, digits)}]"


def percentiles(values: np.ndarray) -> np.ndarray:
    """Returns the 5/50/95 percentiles over the last axis, stacked first.

    They are observations, not interpolated, so that infinities stay harmless.
    """
    return np.percentile(values, (5, 50, 95), axis=-1, method="closest_observation")


def short(value: float, digits: int = 3) -> str:
    """Returns a number to so many significant digits, in plain notation where that is readable."""
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        decimals = digits - 1 - math.floor(math.log10(abs(value)))
        return f"{value:.{max(decimals, 0)}f}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"
