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


def test_works_ahead_but_not_further():
    batches = SlowBatches(0.0)
    with Prefetcher(batches, 1, 10, ahead=3) as prefetcher:
        time.sleep(0.1)
        assert batches.asked == [10, 11, 12]
        assert prefetcher.next() == {"i": 10, "seed": 1}
        time.sleep(0.1)
        assert batches.asked == [10, 11, 12, 13]


def test_waiting_is_accounted():
    with Prefetcher(SlowBatches(0.05), 0, 0, ahead=1) as prefetcher:
        for _ in range(4):
            prefetcher.next()
        assert 0.15 < prefetcher.wait_s < 1.0
    with Prefetcher(SlowBatches(0.01), 0, 0, ahead=4) as prefetcher:
        time.sleep(0.2)
        for _ in range(4):
            prefetcher.next()
        assert prefetcher.wait_s < 0.01


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
    assert len(batches.asked) < 5
