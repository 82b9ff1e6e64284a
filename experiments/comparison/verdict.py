"""The verdict: gain, no gain, loss or cannot tell yet, each by a test with a stated level."""

import dataclasses
import enum
import math
from collections.abc import Sequence

from experiments.comparison.margin import Margin
from experiments.comparison.statistics import MOST_SEEDS, Estimate, holm, seeds_needed

# Chance of any false claim among the methods compared at one budget, two-sided.
LEVEL = 0.05
# Chance that the recommended number of seeds sees a gain of the size of the margin.
POWER = 0.9
# Fewer seeds give no verdict.
FEWEST_SEEDS = 3


class Kind(enum.StrEnum):
    GAIN = "gain"
    NO_GAIN = "no gain"
    LOSS = "loss"
    CANNOT_TELL = "cannot tell yet"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What can be claimed of one method at one budget."""

    kind: Kind
    # One sentence for a reader who asks why.
    reason: str
    # Seeds in all, on each side, that would settle it; None where it is settled or none would.
    seeds_needed: int | None = None
    # The same, if the spread measured so far is the true one.
    seeds_if_spread_is_right: int | None = None
    # Two-sided, of no difference, adjusted for the number of methods; NaN without an estimate.
    p_adjusted: float = math.nan


@dataclasses.dataclass(frozen=True)
class Misses:
    """Runs whose loss was not finite: k of n, for the method and for the baseline."""

    method: int
    method_seeds: int
    baseline: int
    baseline_seeds: int


def decide(
    estimates: Sequence[Estimate | None],
    misses: Sequence[Misses],
    margin: Margin,
    level: float = LEVEL,
    power: float = POWER,
) -> list[Verdict]:
    """Verdicts for all methods compared with one baseline at one budget.

    With Δ the baseline's loss less the method's and m the margin, each hypothesis below is tested
    at level/2, one-sided, Holm's correction being made over the methods:

      gain       Δ ≤ 0 is rejected, and Δ < m is not established
      loss       Δ ≥ 0 is rejected, and Δ > −m is not established
      no gain    Δ ≥ m is rejected (a gain worth having is excluded), and it is no loss
      otherwise  cannot tell yet

    A run that diverged is an infinite loss: a method half of whose seeds or more diverged (more
    than of the baseline's) has a loss for a median, one with fewer gets no verdict in its favour.
    An estimate of None stands for too few seeds.
    """
    better = _adjusted([e.p_at_most(0) if e else None for e in estimates])
    worse = _adjusted([e.p_at_least(0) if e else None for e in estimates])
    below = _adjusted([e.p_at_least(margin.loss) if e else None for e in estimates])
    above = _adjusted([e.p_at_most(-margin.loss) if e else None for e in estimates])
    # Below the level exactly where one of these two tests rejects.
    two_sided = [min(2 * min(pair), 1.0) for pair in zip(better, worse, strict=True)]
    count = sum(e is not None for e in estimates)
    verdicts = []
    for index, (estimate, missed) in enumerate(zip(estimates, misses, strict=True)):
        if settled := _by_misses(missed):
            verdicts.append(settled)
            continue
        if estimate is None:
            verdicts.append(_too_few(missed))
            continue
        alpha = level / 2
        tests = _Tests(
            better=better[index] < alpha,
            worse=worse[index] < alpha,
            below_margin=margin.known and below[index] < alpha,
            above_minus_margin=margin.known and above[index] < alpha,
        )
        kind, reason = _kind(tests, margin)
        needed = likely = None
        if kind is Kind.CANNOT_TELL:
            needed, likely = recommend(estimate, margin, count, level, power)
            reason = _with_seeds(reason, estimate.seeds, needed, likely)
        if missed.method and kind is not Kind.LOSS:
            kind, reason = (
                Kind.CANNOT_TELL,
                (
                    f"{missed.method} of {missed.method_seeds} seeds diverged, and a run that "
                    "diverges is a loss; the figures are of the others alone"
                ),
            )
        verdicts.append(
            Verdict(
                kind=kind,
                reason=reason,
                seeds_needed=needed,
                seeds_if_spread_is_right=likely,
                p_adjusted=two_sided[index],
            )
        )
    return verdicts


@dataclasses.dataclass(frozen=True)
class _Tests:
    better: bool
    worse: bool
    below_margin: bool
    above_minus_margin: bool


def _kind(tests: _Tests, margin: Margin) -> tuple[Kind, str]:
    if tests.better and not tests.below_margin:
        return Kind.GAIN, "lower by more than chance explains"
    if tests.worse and not tests.above_minus_margin:
        return Kind.LOSS, "higher by more than chance explains"
    if tests.below_margin:
        if tests.better:
            return Kind.NO_GAIN, "lower, but by less than the smallest gain of interest"
        if tests.worse:
            return Kind.NO_GAIN, "higher, though by less than the margin"
        if tests.above_minus_margin:
            return Kind.NO_GAIN, "the two are equal within the margin"
        return Kind.NO_GAIN, "a gain as large as the margin is excluded"
    if not margin.known:
        return Kind.CANNOT_TELL, f"no difference is shown, and no margin is known: {margin.how}"
    return Kind.CANNOT_TELL, "neither a gain of interest nor its absence is shown"


def recommend(
    estimate: Estimate, margin: Margin, methods: int, level: float = LEVEL, power: float = POWER
) -> tuple[int | None, int | None]:
    """Seeds in all that settle the matter: to be safe, and if the spread measured is the true one.

    They see a gain as large as the margin, and exclude one where there is none, each with the
    wanted power. Where that many are there already, the truth lies between nothing and the margin:
    then the interval must become shorter than the margin, which settles it in any case.
    """
    if not margin.known:
        return None, None
    alpha = level / 2 / max(methods, 1)
    # A true gain of just the margin is taken for a smaller one in alpha of all cases, at each of
    # the two looks that such a plan has.
    wanted = min(power + 2 * alpha, 0.99)
    args = (estimate.spread, estimate.paired, alpha, wanted)
    safe = seeds_needed(margin.loss, *args, df=estimate.df)
    likely = seeds_needed(margin.loss, *args)
    if safe <= estimate.seeds:
        safe = max(seeds_needed(margin.loss / 2, *args, df=estimate.df), estimate.seeds + 1)
        likely = min(safe, max(seeds_needed(margin.loss / 2, *args), estimate.seeds + 1))
    return safe, max(likely, min(safe, estimate.seeds + 1))


def _with_seeds(reason: str, seeds: int, needed: int | None, likely: int | None) -> str:
    if needed is None:
        return reason
    if needed >= MOST_SEEDS:
        return f"{reason}; not even {MOST_SEEDS:,} seeds would do at this budget and margin"
    text = f"{reason}; {needed} seeds would do ({seeds} so far"
    if likely and likely < needed:
        text += f"; {likely} if their spread is as it looks"
    return text + ")"


def _by_misses(missed: Misses) -> Verdict | None:
    if not missed.method_seeds or not missed.baseline_seeds:
        return None
    ours, theirs = missed.method / missed.method_seeds, missed.baseline / missed.baseline_seeds
    if theirs >= 0.5:
        return Verdict(
            kind=Kind.CANNOT_TELL,
            reason=f"{missed.baseline} of {missed.baseline_seeds} seeds of the baseline diverged; "
            "a baseline that does not train is none",
        )
    if ours >= 0.5 and missed.method_seeds >= FEWEST_SEEDS:
        return Verdict(
            kind=Kind.LOSS, reason=f"{missed.method} of {missed.method_seeds} seeds diverged"
        )
    return None


def _too_few(missed: Misses) -> Verdict:
    reason = (
        f"{FEWEST_SEEDS} finished seeds on each side are needed to say anything; there are "
        f"{missed.method_seeds - missed.method} of the method and "
        f"{missed.baseline_seeds - missed.baseline} of the baseline"
    )
    return Verdict(kind=Kind.CANNOT_TELL, reason=reason, seeds_needed=FEWEST_SEEDS)


def _adjusted(p_values: Sequence[float | None]) -> list[float]:
    """Holm's correction over the estimates that there are; NaN for the others."""
    there = [index for index, p in enumerate(p_values) if p is not None]
    adjusted = [math.nan] * len(p_values)
    corrected = holm([p for p in p_values if p is not None])
    for index, value in zip(there, corrected, strict=True):
        adjusted[index] = value
    return adjusted
