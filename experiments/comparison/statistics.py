"""Differences between arms, with intervals, corrections and the number of seeds they need."""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

# Most seeds that are ever asked for; a comparison that needs more is hopeless at this budget.
MOST_SEEDS = 1000
_RESAMPLES = 9999
# Equally likely values over which an unknown spread is averaged.
_SPREADS = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Mean loss of the baseline minus that of the method: above 0 the method is better.

    The t distribution with `df` degrees of freedom has the scale `standard_error`, which is
    `spread` / √n for n seeds on each side.
    """

    difference: float
    standard_error: float
    df: float
    spread: float
    seeds: int
    paired: bool

    def interval(self, level: float) -> tuple[float, float]:
        """The t interval of this coverage."""
        if self.standard_error == 0:
            return self.difference, self.difference
        half = stats.t.ppf(0.5 + level / 2, self.df) * self.standard_error
        return self.difference - half, self.difference + half

    def p_at_most(self, value: float) -> float:
        """One-sided p of the hypothesis that the true difference is `value` or less."""
        return _upper_tail(self.difference - value, self.standard_error, self.df)

    def p_at_least(self, value: float) -> float:
        """One-sided p of the hypothesis that the true difference is `value` or more."""
        return _upper_tail(value - self.difference, self.standard_error, self.df)


def _upper_tail(distance: float, standard_error: float, df: float) -> float:
    if standard_error == 0:
        # All seeds agree to the last bit: what they show is certain, a tie shows nothing.
        return 0.0 if distance > 0 else 1.0
    return float(stats.t.sf(distance / standard_error, df))


def paired(baseline: Sequence[float], method: Sequence[float]) -> Estimate:
    """The mean of the differences seed by seed; both in the order of the same seeds, 2 or more."""
    differences = np.subtract(baseline, method)
    n = len(differences)
    spread = float(differences.std(ddof=1))
    return Estimate(
        difference=float(differences.mean()),
        standard_error=spread / math.sqrt(n),
        df=n - 1,
        spread=spread,
        seeds=n,
        paired=True,
    )


def unpaired(baseline: Sequence[float], method: Sequence[float]) -> Estimate:
    """The difference of two means with unequal spreads (Welch 1947); 2 or more on each side."""
    variances = [float(np.var(side, ddof=1)) for side in (baseline, method)]
    counts = [len(baseline), len(method)]
    shares = [variance / n for variance, n in zip(variances, counts, strict=True)]
    total = sum(shares)
    df = float(min(counts) - 1)
    if total > 0:
        df = total**2 / sum(s**2 / (n - 1) for s, n in zip(shares, counts, strict=True))
    return Estimate(
        difference=float(np.mean(baseline) - np.mean(method)),
        standard_error=math.sqrt(total),
        df=df,
        spread=math.sqrt(sum(variances)),
        seeds=min(counts),
        paired=False,
    )


def bootstrap_interval(
    baseline: Sequence[float], method: Sequence[float], is_paired: bool, level: float
) -> tuple[float, float]:
    """Percentile bootstrap of the difference of means: pairs, or each side, drawn anew.

    The draws are the same in every call. Below some ten seeds it is too narrow, which is why
    verdicts rest on t.
    """
    rng = np.random.default_rng(0)
    first, second = np.asarray(baseline), np.asarray(method)
    at = rng.integers(0, len(first), (_RESAMPLES, len(first)))
    others = at if is_paired else rng.integers(0, len(second), (_RESAMPLES, len(second)))
    means = first[at].mean(axis=1) - second[others].mean(axis=1)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values that keep the chance of any false claim at the level (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(largest, 1.0)
    return adjusted


def power(effect: float, spread: float, seeds: int, is_paired: bool, alpha: float) -> float:
    """Chance that a one-sided t test at `alpha` sees `effect`, the spread being known."""
    return float(_power(np.array([effect / spread]), seeds, is_paired, alpha)[0])


def _power(effects: np.ndarray, seeds: int, is_paired: bool, alpha: float) -> np.ndarray:
    df = (seeds - 1) * (1 if is_paired else 2)
    return stats.nct.sf(stats.t.ppf(1 - alpha, df), df, effects * math.sqrt(seeds))


def seeds_needed(
    effect: float,
    spread: float,
    is_paired: bool,
    alpha: float,
    wanted_power: float,
    df: float = math.inf,
) -> int:
    """The fewest seeds (at least 3, at most MOST_SEEDS) that see `effect` with this power.

    The spread is itself an estimate with `df` degrees of freedom: the power is averaged over what
    the true one may be, spread² · df / χ²(df). A plan that took the estimate for the truth would
    fall short of its power (Browne 1995, Statistics in Medicine 14).
    """
    if effect <= 0 or not math.isfinite(spread):
        return MOST_SEEDS
    if spread == 0:
        return 3
    # Rounded, to three digits, so that the search is remembered; downwards, to stay safe.
    digits = 2 - math.floor(math.log10(effect / spread))
    ratio = math.floor(effect / spread * 10**digits) / 10**digits
    return _seeds_for(ratio, is_paired, alpha, wanted_power, df)


@functools.lru_cache(maxsize=65536)
def _seeds_for(ratio: float, is_paired: bool, alpha: float, wanted_power: float, df: float) -> int:
    effects = np.array([ratio])
    if math.isfinite(df):
        shares = (np.arange(_SPREADS) + 0.5) / _SPREADS
        effects = ratio * np.sqrt(stats.chi2.ppf(shares, df) / df)
    low, high = 3, MOST_SEEDS
    while low < high:
        middle = (low + high) // 2
        if _power(effects, middle, is_paired, alpha).mean() >= wanted_power:
            high = middle
        else:
            low = middle + 1
    return low
