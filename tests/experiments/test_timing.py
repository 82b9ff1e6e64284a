"""Interleaved timing of programs, on calls whose seconds are known."""

import itertools
import types

import pytest

from experiments import timing
from experiments.timing import calls_per_block, compare_calls, interleaved


class Machine:
    """A clock that calls push on, and that runs `slowdown` times slower as time goes by."""

    def __init__(self, slowdown=lambda now: 1.0):
        self.now = 0.0
        self.slowdown = slowdown
        self.calls = []

    def call(self, name, seconds):
        def run(index):
            self.calls.append((name, index))
            self.now += seconds * self.slowdown(self.now)

        return run


@pytest.fixture
def machine(monkeypatch):
    def make(**kwargs):
        made = Machine(**kwargs)
        clock = types.SimpleNamespace(perf_counter=lambda: made.now)
        monkeypatch.setattr(timing, "time", clock)
        return made

    return make


def test_rounds_go_back_and_forth_in_blocks(machine):
    it = machine()
    found = interleaved([(it.call("a", 1.0), 2), (it.call("b", 3.0), 1)], rounds=2)
    assert found == [[1.0, 1.0], [3.0, 3.0]]
    warm = [("a", 0), ("a", 1), ("b", 0)]
    assert it.calls == [*warm, *warm, ("b", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize(
    "slowdown",
    [
        # A machine that gets twice as slow while it is measured.
        lambda now: 1.0 + now / 300,
        # One that something else takes half of now and then.
        lambda now: 2.0 if now % 100 < 20 else 1.0,
    ],
)
def test_what_the_machine_does_meanwhile_cancels(machine, slowdown):
    it = machine(slowdown=slowdown)
    ratio = compare_calls(it.call("plain", 1.0), it.call("other", 1.3), base_s=1.0, rounds=30)
    assert ratio.median == pytest.approx(1.3, rel=0.02)
    assert ratio.low < 1.301 and ratio.high > 1.299


def test_blocks_are_of_a_fifth_of_a_second():
    assert [calls_per_block(s) for s in (1e-6, 0.04, 3.0)] == [16, 5, 4]
    assert all(a >= b for a, b in itertools.pairwise(map(calls_per_block, (0.02, 0.03, 0.05))))
