"""The prefetcher works ahead, accounts for waiting, hands errors on and ends its thread."""

import threading
import time

import pytest

from experiments.data.prefetch import Prefetcher


class SlowBatches:
    """Stands in for Batches: says which batch it was asked for, after a while."""

    def __init__(self, seconds: float, bad: int = -1) -> None:
        self.seconds, self.bad = seconds, bad
        self.asked: list[int] = []

    def batch(self, seed, i, rows):
        self.asked.append(i)
        time.sleep(self.seconds)
        if i == self.bad:
            raise OSError(f"cannot read batch {i}")
        return {"i": i, "seed": seed}


def wait_until(condition, seconds: float = 20.0) -> None:
    """Returns as soon as the condition holds; a busy machine may take its time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def test_works_ahead_but_not_further():
    batches = SlowBatches(0.0)
    with Prefetcher(batches, 1, 10, ahead=3) as prefetcher:
        wait_until(lambda: len(batches.asked) >= 3)
        time.sleep(0.05)
        assert batches.asked == [10, 11, 12]
        assert prefetcher.next() == {"i": 10, "seed": 1}
        wait_until(lambda: len(batches.asked) >= 4)
        time.sleep(0.05)
        assert batches.asked == [10, 11, 12, 13]


def test_waiting_is_accounted():
    with Prefetcher(SlowBatches(0.1), 0, 0, ahead=1) as prefetcher:
        for _ in range(4):
            prefetcher.next()
        waited = prefetcher.wait_s
    assert waited > 0.3
    batches = SlowBatches(0.1)
    with Prefetcher(batches, 0, 0, ahead=4) as prefetcher:
        wait_until(lambda: len(batches.asked) >= 4)
        time.sleep(0.15)
        for _ in range(4):
            prefetcher.next()
        assert prefetcher.wait_s < 0.1


def test_errors_reach_the_consumer_at_their_batch():
    with Prefetcher(SlowBatches(0.0, bad=2), 0, 0) as prefetcher:
        assert [prefetcher.next()["i"] for _ in range(2)] == [0, 1]
        with pytest.raises(OSError, match="cannot read batch 2"):
            prefetcher.next()


def test_closing_ends_the_thread_and_drops_what_was_to_come():
    batches = SlowBatches(0.05)
    prefetcher = Prefetcher(batches, 0, 0, ahead=50)
    prefetcher.next()
    prefetcher.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("prefetch")]
    assert len(batches.asked) < 25
