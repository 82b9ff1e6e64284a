"""Does the instrument grant gains that are not there, and does it find one that is?"""

import dataclasses
from collections.abc import Callable, Sequence

from experiments.comparison.compare import Options, Result, compare
from experiments.comparison.runs import Run
from experiments.comparison.simulate import Planted, World, simulate
from experiments.comparison.verdict import Kind

BASELINE = Planted()
_WORLD = World()
# Budgets of the baseline beside the compared one, for the slope of its loss.
_SECOND_BUDGET = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """Something planted, many times over, and what the instrument ought to say of it."""

    what: str
    planted: Planted
    # Seeds at first; where they tell nothing, the recommended number is run and looked at once.
    pilot_seeds: int = 5
    world: World = _WORLD
    # Seeds of the method follow on those of the baseline instead of being the same.
    other_seeds: bool = False
    second_budget: bool = True
    # Methods without any effect that are compared at the same time.
    bystanders: int = 0


@dataclasses.dataclass
class Tally:
    """Verdicts of one case over its repetitions."""

    case: Case
    # By the pilot alone, and after the recommended number of seeds where the pilot told nothing.
    pilot: dict[Kind, int]
    final: dict[Kind, int]
    # Recommended seeds, of the repetitions that needed more.
    recommended: list[int]

    @property
    def repetitions(self) -> int:
        return sum(self.final.values())

    def share(self, kind: Kind) -> float:
        return self.final[kind] / self.repetitions


def cases() -> list[Case]:
    """What is planted: nothing, in several ways; a faster and a slower step; a shifted loss."""
    itself = Planted(name="itself")
    faster = Planted(name="faster", speedup=1.05)
    return [
        Case(what="nothing, same seeds", planted=itself),
        Case(what="nothing, other seeds", planted=itself, other_seeds=True),
        Case(what="nothing, 3 seeds at first", planted=itself, pilot_seeds=3),
        Case(what="nothing, any of 5 methods", planted=itself, bystanders=4),
        Case(what="nothing, slope from the curve", planted=itself, second_budget=False),
        Case(what="a step 5 % faster", planted=faster),
        Case(what="a step 5 % faster, 3 seeds at first", planted=faster, pilot_seeds=3),
        Case(what="a step 5 % faster, other seeds", planted=faster, other_seeds=True),
        Case(what="a step 5 % faster, slope from the curve", planted=faster, second_budget=False),
        Case(what="a step 10 % faster", planted=Planted(name="faster", speedup=1.1)),
        Case(what="a step 5 % slower", planted=Planted(name="slower", speedup=1 / 1.05)),
        Case(what="loss lower by 0.02 nats", planted=Planted(name="lower", lower_by=0.02)),
        Case(what="loss higher by 0.02 nats", planted=Planted(name="higher", lower_by=-0.02)),
        Case(what="a third of the runs diverge", planted=Planted(name="unsound", divergence=0.33)),
    ]


def run_case(case: Case, repetitions: int, tick: Callable[[], None] = lambda: None) -> Tally:
    """Simulates the case many times; the same repetitions give the same tally."""
    tally = Tally(case, dict.fromkeys(Kind, 0), dict.fromkeys(Kind, 0), [])
    for draw in range(repetitions):
        results = look(case, case.pilot_seeds, draw)
        first = _worst(results)
        tally.pilot[first.verdict.kind] += 1
        needed = first.verdict.seeds_needed
        if first.verdict.kind is Kind.CANNOT_TELL and needed is not None:
            tally.recommended.append(needed)
            results = look(case, needed, draw)
        tally.final[_worst(results).verdict.kind] += 1
        tick()
    return tally


def _worst(results: Sequence[Result]) -> Result:
    """The method under test; with bystanders, the first of all that is granted a gain."""
    granted = [one for one in results if one.verdict.kind is Kind.GAIN]
    return granted[0] if granted else results[0]


def look(case: Case, seeds: int, draw: int) -> Sequence[Result]:
    """One comparison with so many seeds of each arm; more seeds contain the fewer."""
    first = 10_000 if case.other_seeds else 0
    runs: list[Run] = [simulate(case.world, BASELINE, seed, draw) for seed in range(seeds)]
    if case.second_budget:
        # As many seeds as at the first look, however many the last one has.
        runs += [
            simulate(case.world, BASELINE, seed, draw, _SECOND_BUDGET)
            for seed in range(case.pilot_seeds)
        ]
    methods = [case.planted] + [
        dataclasses.replace(case.planted, name=f"idle{number}") for number in range(case.bystanders)
    ]
    for planted in methods:
        runs += [simulate(case.world, planted, first + seed, draw) for seed in range(seeds)]
    comparison = compare(runs, options=Options(baseline=BASELINE.name, bootstrap=False))
    (block,) = comparison.blocks
    return sorted(block.results, key=lambda result: result.method.exp != case.planted.name)


def aa_runs(seeds: int = 24) -> list[Run]:
    """The baseline, at two budgets, and itself under other seeds: a comparison without any gain."""
    itself = Planted(name="baseline_again")
    world = _WORLD
    runs = [simulate(world, BASELINE, seed) for seed in range(seeds)]
    runs += [simulate(world, BASELINE, seed, budget=_SECOND_BUDGET) for seed in range(5)]
    return runs + [simulate(world, itself, seed) for seed in range(seeds)]
