"""The benchmark of the clock, on a program that takes no time."""

import jax
import jax.numpy as jnp
import pytest

from experiments.benchmark_clock import traced_pairs
from experiments.window import Window
from models.errors import UserError


def test_pairs_are_traced_and_untraced_windows_of_the_same_steps():
    calls = []

    @jax.jit
    def train_step(state):
        return jnp.tanh(state @ state)

    def run(state, index):
        calls.append(index)
        return train_step(state)

    found = traced_pairs(run, jnp.eye(64), steps=4, pairs=3)
    assert len(found) == 3
    # Two to warm up, then four without and four with a trace for each pair.
    assert len(calls) == 2 + 3 * 8
    for pair in found:
        # The first traced run is left out of the period.
        assert pair.timed.steps == 3 and pair.timed.xprof > 0
        assert pair.untraced_s > 0 and pair.timed.wall > 0
        assert pair.around_s > 0


def test_a_trace_that_cannot_be_written_is_an_error_for_the_user(tmp_path, monkeypatch):
    def stop_and_fail():
        stop()
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: x.pb; No space left on device")

    stop = jax.profiler.stop_trace
    monkeypatch.setattr(jax.profiler, "stop_trace", stop_and_fail)
    with Window(tmp_path / "trace", 1) as window:
        window.start()
        with pytest.raises(UserError, match=r"trace was not written \(No space left on device\)"):
            window.stop()
