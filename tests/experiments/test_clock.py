"""Every second belongs to one account, and asynchronous work to the account that started it."""

import time

import jax
import jax.numpy as jnp
import psutil
import pytest

from experiments.clock import Clock


def test_seconds_add_up_to_wall_time():
    begun = time.perf_counter()
    clock = Clock()
    before = sum(clock.seconds.values())
    clock.switch("train")
    time.sleep(0.02)
    with clock.on("evaluate"):
        time.sleep(0.03)
    time.sleep(0.01)
    seconds = clock.seconds
    spent = sum(seconds.values()) - before
    assert spent == pytest.approx(time.perf_counter() - begun, abs=0.02)
    assert seconds["train"] >= 0.03 and seconds["evaluate"] >= 0.03
    assert seconds["evaluate"] < 0.2


def test_the_start_of_the_process_is_counted():
    age_s = time.time() - psutil.Process().create_time()
    assert Clock().seconds["start"] == pytest.approx(age_s, abs=0.5)


def test_time_of_earlier_parts_is_added():
    clock = Clock()
    clock.add({"train": 100.0})
    assert clock.seconds["train"] >= 100.0


def test_queued_work_is_charged_to_the_account_that_queued_it():
    work = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: jnp.tanh(y @ y), x))
    x = jnp.eye(200) * 0.1
    jax.block_until_ready(work(x))
    begun = time.perf_counter()
    jax.block_until_ready(work(x))
    alone = time.perf_counter() - begun
    clock = Clock()
    clock.switch("train")
    queued = work(x)
    with clock.on("evaluate", wait_for=queued):
        pass
    seconds = clock.seconds
    assert seconds["train"] > 0.3 * alone
    assert seconds["evaluate"] < 0.3 * alone


def test_unknown_account_is_refused():
    with pytest.raises(ValueError, match="no account lunch"):
        Clock().switch("lunch")
