"""What an N:M pattern is worth, beside unstructured sparsity of the same density."""

import dataclasses

from sparsity.law.bootstrap import Resamples
from sparsity.law.estimate import Estimate
from sparsity.law.fit import Fit
from sparsity.law.form import equivalent_size
from sparsity.law.points import pattern_sparsity


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatternWorth:
    """An N:M pattern against unstructured sparsity."""

    # The pattern, its sparsity and how many runs had it.
    pattern: str
    sparsity: float
    runs: int
    # Dense weights that one of its non-zero weights is worth.
    multiplier: Estimate
    # The same for unstructured sparsity, from the law.
    unstructured: Estimate
    # The first over the second; an interval that holds 1 shows no difference.
    ratio: Estimate

    @property
    def verdict(self) -> str:
        """Says whether the interval tells the pattern from unstructured sparsity."""
        low, high = self.ratio.low, self.ratio.high
        percent = f"unstructured {100 * self.sparsity:g} %"
        if low is None or high is None:
            return "no interval, no verdict"
        if high < 1.0:
            return f"worse than {percent}"
        if low > 1.0:
            return f"better than {percent}"
        return f"not told apart from {percent}"


def pattern_worths(fitted: Fit, resamples: Resamples) -> list[PatternWorth]:
    """Returns the worth of each N:M pattern among the points, estimated jointly with the law."""
    found = []
    for pattern, value in fitted.multipliers.items():
        sparsity = pattern_sparsity(pattern)
        unstructured = equivalent_size(fitted.coefficients, sparsity)
        resampled = equivalent_size(resamples.coefficients, sparsity)
        worth = resamples.multipliers[pattern]
        found.append(
            PatternWorth(
                pattern=pattern,
                sparsity=sparsity,
                runs=int((fitted.points.pattern == pattern).sum()),
                multiplier=Estimate.over(value, worth),
                unstructured=Estimate.over(unstructured, resampled),
                ratio=Estimate.over(value / unstructured, worth / resampled),
            )
        )
    return found
