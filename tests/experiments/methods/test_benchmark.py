"""The benchmark of charges: what it times at once, and that a charge that is too low shows."""

import types

import pytest

from experiments.methods import benchmark, loop_overhead
from experiments.methods.benchmark import measure, whole_periods
from experiments.program import compile_program


@pytest.fixture(autouse=True)
def short_passes(monkeypatch):
    monkeypatch.setattr(loop_overhead, "_PASS_S", 0.1)


def program(*periods):
    return types.SimpleNamespace(sides=[types.SimpleNamespace(every_steps=n) for n in periods])


def test_blocks_hold_everything_as_often_as_it_is_due():
    assert whole_periods(program(), 5) == 5
    assert whole_periods(program(10), 5) == 10
    assert whole_periods(program(10, 4), 21) == 40


@pytest.mark.slow
def test_programs_add_up_to_what_a_step_takes(tiny):
    """Steps of a fraction of a millisecond: far less exactly than those that it is made for."""
    deep = ["model.num_encoder_layers=2", "model.num_decoder_layers=2", "train.batch_size=64"]
    experiment = tiny("t5_selective_backprop", settings=deep)
    found = measure(experiment, compile_program, rounds=10)
    assert set(found.programs) == {"train", "forward"}
    assert found.charged > 1.1
    assert found.ratio.median == pytest.approx(1.0, abs=0.2)
    assert found.loop_s.median < 0.02


@pytest.mark.slow
def test_a_program_that_is_not_charged_shows(tiny, monkeypatch):
    monkeypatch.setattr(benchmark, "step_seconds", lambda programs: programs["train"]["seconds"])
    deep = ["model.num_encoder_layers=2", "model.num_decoder_layers=2", "train.batch_size=64"]
    found = measure(tiny("t5_selective_backprop", settings=deep), compile_program, rounds=10)
    assert found.ratio.high < 0.9
