"""What a run's figures were measured on."""

import dataclasses
import os
import pathlib
import platform
import re

import jax


@dataclasses.dataclass(frozen=True)
class Device:
    """One kind of device with its software: figures of different ones are never mixed."""

    # As in "NVIDIA H100" or the processor's name.
    kind: str
    # "cpu", "gpu" or "tpu".
    platform: str
    # Devices in use, and the processors of the host for a CPU.
    count: int
    processors: int
    jax: str

    @property
    def key(self) -> str:
        """A file name that is the same for the same device and software."""
        text = f"{self.kind}-x{self.count}-{self.processors}p-jax{self.jax}"
        return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-").lower()


def this_device() -> Device:
    """The device that this process computes on."""
    device = jax.devices()[0]
    kind = _processor_name() if device.platform == "cpu" else device.device_kind
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    )
    return Device(kind, device.platform, jax.device_count(), processors or 1, jax.__version__)


def _processor_name() -> str:
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        match = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        if match:
            return match[1].strip()
    return platform.processor() or platform.machine()
