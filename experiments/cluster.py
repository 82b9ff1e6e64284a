"""How the processes of a run meet: from flags, or from what a scheduler says."""

import dataclasses
import os
import socket
import sys
import time
from collections.abc import Mapping

import jax

from experiments.gloo import start_backend
from models.errors import UserError

# A process that has not been heard of for so long is taken for dead, and all others stop.
HEARTBEAT_S = 20
# What a process waits for the others when it ends.
SHUTDOWN_S = 30


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
        if cluster.coordinator is not None:
            _check_free(cluster.coordinator)
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
    start_backend()


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


def _check_free(address: str) -> None:
    """Raises UserError where the first process cannot listen at the port: JAX would not say why."""
    port = int(address.rpartition(":")[2])
    try:
        with socket.create_server(("", port)):
            return
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    with socket.socket() as other:
        other.bind(("", 0))
        free = other.getsockname()[1]
    raise UserError(
        f"--coordinator {address}: process 0 cannot listen at port {port} ({reason}); port {free} "
        "is free on this host."
    )
