"""The self-test of the instrument, with few repetitions."""

from experiments.comparison.selftest import Case, run_case
from experiments.comparison.simulate import Planted
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
