"""Runs in, verdicts out: everything that a comparison says, as plain values."""

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from experiments.comparison import profile
from experiments.comparison.arms import Arm, Match, Refused, make_arms, match, shares_data_order
from experiments.comparison.downstream_table import Downstream, compare_downstream
from experiments.comparison.margin import DEFAULT_MARGIN, Margin, MarginRequest, find_margin
from experiments.comparison.notes import arm_warnings, budget_warnings, pair_warnings
from experiments.comparison.runs import LeftOut, Run
from experiments.comparison.statistics import Estimate, bootstrap_interval, paired, unpaired
from experiments.comparison.verdict import (
    FEWEST_SEEDS,
    LEVEL,
    POWER,
    Misses,
    Verdict,
    decide,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What the user may choose; everything else is fixed, so that nothing is tuned to a result."""

    baseline: str | None = None
    methods: tuple[str, ...] = ()
    margin: MarginRequest = DEFAULT_MARGIN
    level: float = LEVEL
    power: float = POWER
    # Compares the baseline with itself, every other seed against the rest.
    against_itself: bool = False
    # Bootstrap intervals beside those of t, on which every verdict rests.
    bootstrap: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One method against the baseline at one budget."""

    method: Arm
    verdict: Verdict
    # None with too few seeds.
    estimate: Estimate | None
    t_interval: tuple[float, float]
    bootstrap: tuple[float, float]
    # Reference seconds to the baseline's mean final loss, by seed; ∞ for a miss.
    times: tuple[float, ...]
    # Mean loss of the runs that reached the end; NaN if none did.
    mean_loss: float
    downstream: tuple[Downstream, ...]
    warnings: tuple[str, ...]

    @property
    def reached(self) -> int:
        return sum(math.isfinite(seconds) for seconds in self.times)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """All methods that are compared with one baseline at one budget."""

    baseline: Arm
    margin: Margin
    mean_loss: float
    budget_s: float
    results: tuple[Result, ...]
    warnings: tuple[str, ...]

    @property
    def workload(self) -> str:
        """What the block is called in a reference set."""
        conditions = self.baseline.conditions
        return f"{self.baseline.label} / {conditions.scale} / {conditions.budget}"

    @property
    def target(self) -> profile.Target:
        """The baseline's median final loss to within the margin, and its own time to there.

        The median, since so many of its seeds reach it that its own time is never a miss.
        """
        slack = self.margin.loss if self.margin.known else 0.0
        finals = [run.final_loss for run in self.baseline.runs if math.isfinite(run.final_loss)]
        loss = statistics.median_high(finals) + slack if finals else math.nan
        curves = [run.validation for run in self.baseline.runs]
        return profile.reference_target(curves, loss, self.budget_s)


@dataclasses.dataclass(frozen=True)
class Profile:
    """One method over the workloads of the reference set."""

    method: str
    # Time over the reference's time, by workload.
    ratios: dict[str, float]
    score: float
    speedup: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that a comparison of runs says."""

    options: Options
    blocks: tuple[Block, ...]
    refused: tuple[Refused, ...]
    left_out: tuple[LeftOut, ...]
    reference_set: profile.ReferenceSet
    # Whether the reference set was read from a file rather than made from these baselines.
    frozen: bool
    profiles: tuple[Profile, ...]


def compare(
    runs: Sequence[Run],
    left_out: Sequence[LeftOut] = (),
    options: Options | None = None,
    reference_set: profile.ReferenceSet | None = None,
) -> Comparison:
    """Compares runs; raises UserError where nothing can be compared."""
    options = options or Options()
    arms = make_arms(runs)
    if options.against_itself:
        matches, refused = _halves(arms, options)
    else:
        matches, refused = match(arms, options.baseline, options.methods)
    blocks = tuple(_block(one, options) for one in matches if one.methods)
    frozen = reference_set is not None
    if reference_set is None:
        reference_set = {block.workload: block.target for block in blocks}
    return Comparison(
        options=options,
        blocks=blocks,
        refused=tuple(refused),
        left_out=tuple(left_out),
        reference_set=reference_set,
        frozen=frozen,
        profiles=_profiles(blocks, reference_set, frozen),
    )


def _halves(arms: Sequence[Arm], options: Options) -> tuple[list[Match], list[Refused]]:
    """Every other seed of each baseline against the rest: there can be no gain."""
    matches, _ = match(arms, options.baseline)
    halves = []
    for one in matches:
        runs = one.baseline.runs
        itself = dataclasses.replace(
            one.baseline, label=f"{one.baseline.label}, other seeds", runs=runs[1::2]
        )
        rest = dataclasses.replace(one.baseline, runs=runs[::2])
        methods = (itself,) if itself.runs else ()
        halves.append(Match(rest, methods, one.other_budgets))
    return halves, []


def _block(found: Match, options: Options) -> Block:
    baseline = found.baseline
    margin = find_margin(options.margin, baseline.runs, [arm.runs for arm in found.other_budgets])
    mean_loss = _mean_loss(baseline.runs)
    pairs = [_paired_losses(baseline, method) for method in found.methods]
    estimates = [_estimate(*pair) for pair in pairs]
    misses = [
        Misses(len(method.diverged), len(method.runs), len(baseline.diverged), len(baseline.runs))
        for method in found.methods
    ]
    verdicts = decide(estimates, misses, margin, options.level, options.power)
    results = []
    for method, pair, estimate, verdict in zip(
        found.methods, pairs, estimates, verdicts, strict=True
    ):
        nothing = resampled = (math.nan, math.nan)
        if estimate and options.bootstrap:
            resampled = bootstrap_interval(*pair, 1 - options.level)
        results.append(
            Result(
                method=method,
                verdict=verdict,
                estimate=estimate,
                t_interval=estimate.interval(1 - options.level) if estimate else nothing,
                bootstrap=resampled,
                times=tuple(profile.time_to_loss(run.validation, mean_loss) for run in method.runs),
                mean_loss=_mean_loss(method.runs),
                downstream=compare_downstream(baseline.runs, method.runs, estimate),
                warnings=(*arm_warnings(method), *pair_warnings(baseline, method)),
            )
        )
    return Block(
        baseline=baseline,
        margin=margin,
        mean_loss=mean_loss,
        budget_s=float(np.mean([run.rst_s for run in baseline.runs])),
        results=tuple(sorted(results, key=_from_best_to_worst)),
        warnings=(*budget_warnings(baseline), *arm_warnings(baseline)),
    )


def _from_best_to_worst(result: Result) -> tuple[float, str]:
    """By the figures that are shown; those without any come last."""
    loss = result.mean_loss
    return (loss if math.isfinite(loss) else math.inf, result.method.label)


def _mean_loss(runs: Sequence[Run]) -> float:
    losses = [run.final_loss for run in runs if math.isfinite(run.final_loss)]
    return float(np.mean(losses)) if losses else math.nan


def _paired_losses(baseline: Arm, method: Arm) -> tuple[list[float], list[float], bool]:
    """Final losses of the finished runs, seed by seed where seeds are shared and read alike."""
    ours = {run.seed: run.final_loss for run in method.runs if math.isfinite(run.final_loss)}
    theirs = {run.seed: run.final_loss for run in baseline.runs if math.isfinite(run.final_loss)}
    shared = sorted(ours.keys() & theirs.keys())
    if len(shared) >= FEWEST_SEEDS and shares_data_order(baseline, method):
        return [theirs[seed] for seed in shared], [ours[seed] for seed in shared], True
    return list(theirs.values()), list(ours.values()), False


def _estimate(
    baseline: Sequence[float], method: Sequence[float], is_paired: bool
) -> Estimate | None:
    if min(len(baseline), len(method)) < FEWEST_SEEDS:
        return None
    return paired(baseline, method) if is_paired else unpaired(baseline, method)


def _profiles(
    blocks: Sequence[Block], reference_set: profile.ReferenceSet, frozen: bool
) -> tuple[Profile, ...]:
    """A profile a method. A method is the same on several workloads under the same short name.

    Against a set that is read from a file a workload that was not run is a miss; otherwise the
    workloads that a method was run on are its reference set.
    """
    times: dict[str, dict[str, float]] = {}
    for block in blocks:
        target = reference_set.get(block.workload)
        if target is None:
            continue
        for arm in (block.baseline, *(result.method for result in block.results)):
            name = "baseline" if arm is block.baseline else short_name(arm.label)
            seconds = [profile.time_to_loss(run.validation, target.loss) for run in arm.runs]
            times.setdefault(name, {})[block.workload] = profile.median_time(seconds)
    profiles = []
    for name, by_workload in times.items():
        known = reference_set if frozen else {w: reference_set[w] for w in by_workload}
        found = profile.ratios(by_workload, known)
        values = list(found.values())
        profiles.append(
            Profile(name, found, profile.score(values), profile.geometric_speedup(values))
        )
    return tuple(profiles)


def short_name(label: str) -> str:
    """`stacking` for bert_stacking and t5_stacking alike; of a baseline the whole label."""
    short = label
    for family in ("bert_", "t5_", "vit_"):
        short = short.removeprefix(family)
    return label if short == "baseline" else short
