"""What a user sees while a run goes on: a live display on a terminal, plain lines elsewhere."""

import os
import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

# Seconds between two plain lines where output is not a terminal.
_PLAIN_EVERY_S = 5.0
# How wide tables are there.
_PIPE_COLUMNS = 120


def make_console(quiet: bool = False) -> Console:
    """A console that breaks no line of text; its tables are wide where nobody can widen them."""
    console = Console(highlight=False, soft_wrap=True, quiet=quiet)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_COLUMNS
    return console


class Display:
    """One line of progress at a time, with messages above it."""

    def __init__(self, console: Console | None = None, quiet: bool = False):
        self.console = console or make_console(quiet)
        self._live = self.console.is_terminal
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._label = ""
        self._last_plain = 0.0

    def tell(self, text: str) -> None:
        """Prints a message that stays."""
        self.console.print(text, markup=False)

    def start(self, label: str, total: int | None) -> None:
        """Starts a phase of `total` units of work (None: unknown)."""
        self.stop()
        self._label = label
        self._last_plain = 0.0
        if self._live:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[detail]}"),
                TimeRemainingColumn(compact=True),
                console=self.console,
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(label, total=total, detail="")

    def update(self, done: int, total: int | None, detail: str) -> None:
        """Shows that `done` of `total` units are done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total, detail=detail)
        elif time.monotonic() - self._last_plain >= _PLAIN_EVERY_S or done == total:
            self._last_plain = time.monotonic()
            share = f" {100 * done / total:3.0f} %" if total else ""
            self.tell(f"{self._label}{share}  {detail}")

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
