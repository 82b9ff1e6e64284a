"""Where wall time goes: every second of a run belongs to exactly one account."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import psutil

# What a run's time is spent on; "train" and "grow" alone are paid from the budget.
ACCOUNTS = (
    "start",
    "prepare",
    "compile",
    "measure",
    "train",
    # Turning the state of one stage into that of the next.
    "grow",
    "evaluate",
    "checkpoint",
    "profile",
)


class Clock:
    """Splits wall time into accounts; the seconds survive preemption through the checkpoint."""

    def __init__(self, since_process_start: bool = True) -> None:
        self._seconds = dict.fromkeys(ACCOUNTS, 0.0)
        if since_process_start:
            # Python and its imports belong to the start.
            self._seconds["start"] = max(time.time() - psutil.Process().create_time(), 0.0)
        self._account = "start"
        self._since = time.perf_counter()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by account until now."""
        self.switch(self._account)
        return dict(self._seconds)

    def add(self, spent: Mapping[str, float]) -> None:
        """Adds what earlier parts of this run have spent."""
        for account, seconds in spent.items():
            self._seconds[account] += seconds

    def move(self, source: str, target: str, seconds: float) -> None:
        """Moves seconds that were timed apart from one account to another."""
        self._seconds[source] -= seconds
        self._seconds[target] += seconds

    def switch(self, account: str, wait_for: Any = None) -> str:
        """Ends the current account and starts another; returns the one that ended.

        `wait_for` is a pytree of arrays: asynchronous work that belongs to the ending account is
        waited for first.
        """
        if account not in ACCOUNTS:
            raise ValueError(f"no account {account}")
        if wait_for is not None:
            jax.block_until_ready(wait_for)
        now = time.perf_counter()
        self._seconds[self._account] += now - self._since
        ended, self._account, self._since = self._account, account, now
        return ended

    @contextlib.contextmanager
    def on(self, account: str, wait_for: Any = None) -> Iterator[None]:
        """Charges the body to `account` and goes back to the account before."""
        before = self.switch(account, wait_for)
        try:
            yield
        finally:
            self.switch(before)
