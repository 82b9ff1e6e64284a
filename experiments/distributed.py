"""Several processes as one: how they meet, what they agree on, and how they stop.

Every process runs the same program on its own devices. The first one alone writes files; what it
reads or measures is handed to the others, so that no two of them can decide differently.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import pickle
import platform
import signal
import socket
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

# A process that has not been heard of for so long is taken for dead, and all others stop.
HEARTBEAT_S = 20
# What a process waits for the others when it ends.
SHUTDOWN_S = 30
# Exit code where another process has died or cannot be reached.
EXIT_LOST = 3

# Files by which hosts find out whether they see the same folder start so.
SHARED_MARK = ".shared-"
_SHARED_S = 15

_ROOMS = ("models", "sparsity", "fff", "experiments", "launch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where the processes of a run meet; None where the environment is to say it."""

    # host:port of the first process.
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    # Seconds until processes that do not come are given up.
    timeout_s: int = 300

    def check(self) -> None:
        """Raises UserError where only some of the three are given, or do not fit each other."""
        given = {
            "--coordinator": self.coordinator,
            "--num_processes": self.num_processes,
            "--process_id": self.process_id,
        }
        missing = [name for name, value in given.items() if value is None]
        if missing and len(missing) < len(given):
            raise UserError(f"{', '.join(missing)}: missing; the three flags go together.")
        if self.coordinator is None or self.num_processes is None or self.process_id is None:
            return
        _, colon, port = self.coordinator.rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise UserError(
                f"--coordinator {self.coordinator}: write host:port, the port from 1 to 65535."
            )
        if not 0 <= self.process_id < self.num_processes:
            raise UserError(
                f"--process_id {self.process_id}: must be at least 0 and below --num_processes "
                f"{self.num_processes}."
            )


def in_cluster(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether Slurm, Open MPI or a TPU pod has started several processes, this one among them."""

    def count(name: str) -> int:
        value = environment.get(name, "")
        return int(value) if value.isdigit() else 0

    in_step = "SLURM_STEP_NODELIST" in environment and "SLURM_PROCID" in environment
    if in_step and count("SLURM_STEP_NUM_TASKS") > 1:
        return True
    if "OMPI_MCA_orte_hnp_uri" in environment and count("OMPI_COMM_WORLD_SIZE") > 1:
        return True
    if "JAX_COORDINATOR_ADDRESS" in environment:
        return True
    return "," in environment.get("TPU_WORKER_HOSTNAMES", "")


def join(cluster: Cluster, always: bool = False) -> None:
    """Meets the other processes, if there are any; call before the first use of a device.

    With `always` JAX's own detection is asked even if no sign of several processes is seen, as on
    Cloud TPU, where only the machine's metadata tell.

    Raises:
      UserError: the coordinator, or another process, does not answer in time.
    """
    cluster.check()
    if cluster.coordinator is None and not always and not in_cluster():
        return
    where = cluster.coordinator or "the address that the environment gives"
    if cluster.coordinator is not None and cluster.process_id:
        _wait_for(cluster.coordinator, cluster.timeout_s)
    elif not cluster.process_id:
        # Where others do not come, JAX ends the process without naming the place.
        print(
            f"Meeting the other processes at {where}, for at most {cluster.timeout_s} s.",
            file=sys.stderr,
            flush=True,
        )
    try:
        jax.distributed.initialize(
            cluster.coordinator,
            cluster.num_processes,
            cluster.process_id,
            # Explicit processes use all devices that they see, as one alone would.
            cluster_detection_method="deactivate" if cluster.coordinator else None,
            initialization_timeout=cluster.timeout_s,
            heartbeat_timeout_seconds=HEARTBEAT_S,
            shutdown_timeout_seconds=SHUTDOWN_S,
        )
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"{where}: the {cluster.num_processes or ''} processes of this run did not meet "
            f"within {cluster.timeout_s} s ({reason})."
        ) from None


def _wait_for(address: str, timeout_s: int) -> None:
    """Returns once something listens at the address; JAX itself would not name it."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + timeout_s
    reason: OSError | None = None
    while time.monotonic() < deadline:
        try:
            # An IPv6 address has brackets before its port.
            where = (host.strip("[]"), int(port))
            with socket.create_connection(where, timeout=min(timeout_s, 5)):
                return
        except OSError as error:
            reason = error
            time.sleep(0.2)
    raise UserError(
        f"--coordinator {address}: cannot be reached within {timeout_s} s ({reason}). Is process 0 "
        "running there, and does the network let this port through?"
    )


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
