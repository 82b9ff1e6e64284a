"""Several processes as one: what they agree on, and how they stop.

Every process runs the same program on its own devices. The first one alone writes files; what it
reads or measures is handed to the others, so that no two of them can decide differently.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import pickle
import platform
import signal
import sys
import time
import types
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from models.errors import UserError

T = TypeVar("T")

# Exit code where another process has died or cannot be reached.
EXIT_LOST = 3

# Files by which hosts find out whether they see the same folder start so.
SHARED_MARK = ".shared-"
_SHARED_S = 15

_ROOMS = ("models", "sparsity", "fff", "experiments", "launch")


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def from_first(value: T) -> T:
    """The value that the first process has, on every process; all must call it."""
    if jax.process_count() == 1:
        return value
    mine = np.frombuffer(pickle.dumps(value if is_first() else None), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(mine.size)))
    padded = np.resize(mine, size) if is_first() else np.zeros(size, np.uint8)
    return pickle.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())


def on_first(function: Callable[[], T]) -> T:
    """Calls a function on the first process; its result, or its UserError, reaches all."""
    if jax.process_count() == 1:
        return function()
    result, error = None, None
    if is_first():
        try:
            result = function()
        except UserError as raised:
            error = str(raised)
    result, error = from_first((result, error))
    if error is not None:
        raise UserError(error)
    return result  # type: ignore[return-value]


def from_all(value: Any) -> list[Any]:
    """The values of all processes, in their order; each must be what JSON can hold."""
    if jax.process_count() == 1:
        return [value]
    mine = np.frombuffer(json.dumps(value).encode(), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(np.int32(mine.size))).reshape(-1)
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: mine.size] = mine
    gathered = np.asarray(multihost_utils.process_allgather(padded))
    return [json.loads(row[:size].tobytes()) for row, size in zip(gathered, sizes, strict=True)]


def check_agreement(what: Mapping[str, Any]) -> None:
    """Raises UserError, on every process, where `what` is not the same on all of them.

    The code that runs, the versions of JAX and Python and the number of devices are compared too.
    The error names the hosts and the first field in which each differs from the first process.
    """
    if jax.process_count() == 1:
        return
    mine = {
        **what,
        "code (a digest of its files)": code_digest(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "devices of the host": jax.local_device_count(),
    }
    everyone = from_all({"host": platform.node(), "what": mine})
    first, *others = everyone
    differing = [
        f"{one['host']} (process {index}): {difference}"
        for index, one in enumerate(others, 1)
        if (difference := first_difference(one["what"], first["what"]))
    ]
    if differing:
        raise UserError(
            f"the hosts of this run disagree with {first['host']} (process 0). "
            + "; ".join(differing)
        )


def first_difference(here: Any, there: Any, path: str = "") -> str:
    """`train.batch_size: 8 here, 16 on process 0`; empty where both are the same."""
    if isinstance(here, dict) and isinstance(there, dict):
        for name in sorted(set(here) | set(there)):
            inner = f"{path}.{name}" if path else name
            if found := first_difference(here.get(name), there.get(name), inner):
                return found
        return ""
    return "" if here == there else f"{path} is {here!r} there, {there!r} on process 0"


def code_digest() -> str:
    """Digest of every source file of the suite: a commit would not show changes on top of it."""
    root = pathlib.Path(__file__).parents[1]
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def check_shared(folder: pathlib.Path) -> None:
    """Raises UserError where a folder is not the same one on all hosts."""
    if jax.process_count() == 1:
        return
    token = from_first(uuid.uuid4().hex)
    mark = folder / f"{SHARED_MARK}{token}"
    on_first(lambda: mark.touch())
    # Storage on a network may take a while to show what another host has made.
    deadline = time.monotonic() + _SHARED_S
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    missing = [
        one["host"]
        for one in from_all({"host": platform.node(), "seen": mark.exists()})
        if not one["seen"]
    ]
    on_first(lambda: mark.unlink())
    if missing:
        raise UserError(
            f"{folder}: {', '.join(missing)} does not see what process 0 writes there. All hosts "
            "need the same --workdir, on storage that they share."
        )


class StopRequest:
    """Turns SIGTERM and Ctrl-C into a question that the loop asks between steps.

    With several processes a signal to any of them stops all of them after the same step: JAX's
    preemption service carries it, and finds a step that none of them has passed.
    """

    def __init__(self) -> None:
        self._requested = False
        self._before: dict[int, Any] = {}

    def after(self, done: int) -> bool:
        """Whether to save and stop after `done` steps; ask after every step, on every process."""
        if jax.process_count() == 1:
            return self._requested
        return multihost_utils.reached_preemption_sync_point(done)

    def _note(self, signum: int, frame: types.FrameType | None) -> None:
        self._requested = True
        # A second Ctrl-C ends the process at once.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if jax.process_count() > 1 and signum == signal.SIGINT:
            os.kill(os.getpid(), signal.SIGTERM)

    def __enter__(self) -> "StopRequest":
        # Of several processes, JAX's preemption service has the handler of SIGTERM.
        alone = (signal.SIGTERM,) if jax.process_count() == 1 else ()
        for number in (*alone, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def stopping_together() -> Iterator[None]:
    """Ends this process with a clear line where another one of the run has gone.

    What JAX raises then comes from whatever was under way: a collective, a barrier, a save. The
    interpreter's own end would wait for the dead process, so this one ends at once.
    """
    try:
        yield
    except (jax.errors.JaxRuntimeError, RuntimeError) as error:
        if jax.process_count() == 1 or isinstance(error, NotImplementedError):
            raise
        reason = " ".join(str(error).split())[:300]
        print(
            f"Process {jax.process_index()} of {jax.process_count()} stops: another process of "
            "this run has died or cannot be reached. Start the same command on all hosts again; "
            f"it goes on from the last checkpoint. ({type(error).__name__}: {reason})",
            file=sys.stderr,
            flush=True,
        )
        sys.stdout.flush()
        os._exit(EXIT_LOST)
