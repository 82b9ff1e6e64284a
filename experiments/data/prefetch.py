"""Batches made ahead by a thread, and the seconds for which they still kept the loop waiting."""

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

from experiments.data.batches import Batch


class Supplier(Protocol):
    """Batches by number, as `Batches` makes them."""

    batch_size: int

    def batch(self, seed: int, i: int, rows: slice = slice(None)) -> Batch: ...

    def windows(self, seed: int, i: int) -> np.ndarray: ...


class Prefetcher:
    """Makes batches start, start + 1, … in the background; use as a context manager."""

    def __init__(
        self,
        batches: Supplier,
        seed: int,
        start: int,
        *,
        rows: slice = slice(None),
        ahead: int = 4,
    ) -> None:
        # Seconds that `next` waited so far.
        self.wait_s = 0.0
        self._batches, self._seed, self._rows = batches, seed, rows
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
        self._coming: deque[Future[Batch]] = deque()
        self._next_to_make = start
        for _ in range(ahead):
            self._make_one_more()

    def _make_one_more(self) -> None:
        future = self._thread.submit(
            self._batches.batch, self._seed, self._next_to_make, self._rows
        )
        self._coming.append(future)
        self._next_to_make += 1

    def next(self) -> Batch:
        """Returns the next batch; raises what making it raised."""
        asked = time.perf_counter()
        batch = self._coming.popleft().result()
        self.wait_s += time.perf_counter() - asked
        self._make_one_more()
        return batch

    def close(self) -> None:
        """Ends the thread; batches that were made ahead are dropped."""
        self._thread.shutdown(cancel_futures=True)

    def __enter__(self) -> "Prefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
