"""The self-test of the instrument, with few repetitions."""

import pytest

from experiments.comparison import real
from experiments.comparison.selftest import Case, run_case
from experiments.comparison.simulate import Planted, World, simulate, write_run
from experiments.comparison.verdict import Kind


def test_false_gains_are_rare_and_a_gain_is_found():
    nothing = run_case(Case(what="nothing", planted=Planted(name="itself")), 60)
    assert nothing.share(Kind.GAIN) <= 0.05
    assert nothing.share(Kind.NO_GAIN) >= 0.8
    faster = run_case(Case(what="faster", planted=Planted(name="faster", speedup=1.05)), 60)
    assert faster.share(Kind.GAIN) >= 0.85


def test_it_repeats_itself():
    case = Case(what="nothing", planted=Planted(name="itself"))
    assert run_case(case, 5).final == run_case(case, 5).final


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """What `make_runs` leaves, from a world with little noise."""
    folder = tmp_path_factory.mktemp("real")
    world = World(steps=160, run_noise=0.001)
    for seed in range(12):
        for budget in (1.0, 1.05, 0.75):
            write_run(simulate(world, Planted(name="vit_baseline"), seed, 0, budget), folder)
    return folder


@pytest.mark.parametrize(
    ("case", "expected"), zip(real.CASES, (None, Kind.GAIN, Kind.LOSS), strict=True)
)
def test_what_is_planted_in_runs_of_folders_is_found(workdir, case, expected):
    kinds, seeds = real.resample(case, workdir, 10)
    assert seeds == 6 and sum(kinds.values()) == 10
    if expected is None:
        assert kinds[Kind.GAIN] + kinds[Kind.LOSS] <= 2
    else:
        assert kinds[expected] == 10
