"""The devices that a plan is for: a TPU slice that is only described, or simulated ones."""

import importlib.util
import math
import os
import re
import sys
from collections.abc import Sequence

import jax
from absl import flags

from launch.chips import CHIPS, TPUS, Chip, find_chip
from models.errors import UserError, did_you_mean

TOPOLOGY = flags.DEFINE_string("topology", "v5e:4x4", "Chip and how many: v5e:4x4, h100:8, cpu:8.")


def parse_topology(text: str) -> tuple[str, int, str]:
    """Reads `v5e:4x4`, `h100:8` or `cpu:8`; returns the chip, how many, and their shape."""
    match = re.fullmatch(r"([a-z0-9-]+):(\d+(?:x\d+)*)", text)
    if match is None or "0" in match[2].split("x"):
        raise UserError(
            f"--topology {text}: write the chip and how many, as in v5e:4x4, h100:8 or cpu:8."
        )
    name, shape = match[1], match[2]
    if name not in CHIPS and name != "cpu":
        known = (*CHIPS, "cpu")
        raise UserError(
            f"--topology {text}: no such chip.{did_you_mean(name, known)} "
            f"Known: {', '.join(known)}."
        )
    return name, math.prod(int(size) for size in shape.split("x")), shape


def prepare_process(topology: str) -> None:
    """Sets what JAX reads once, before its first use: a plan never touches a real accelerator."""
    name, count, _ = parse_topology(topology)
    os.environ["JAX_PLATFORMS"] = "cpu"
    jax.config.update("jax_platforms", "cpu")
    if name in TPUS:
        # The compiler would else look for a real TPU's host names, and lock it for itself.
        for variable, value in {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
            "TPU_STDERR_LOG_LEVEL": "3",
            "TPU_MIN_LOG_LEVEL": "3",
        }.items():
            os.environ.setdefault(variable, value)
    else:
        jax.config.update("jax_num_cpu_devices", count)


def find_devices(topology: str) -> tuple[Sequence[jax.Device], Chip]:
    """The devices to compile for, and what each of them can do."""
    name, count, shape = parse_topology(topology)
    if name not in TPUS:
        return jax.devices("cpu")[:count], find_chip(name)
    if not os.environ.get("TPU_LIBRARY_PATH") and importlib.util.find_spec("libtpu") is None:
        raise UserError(
            f"--topology {topology}: compiling for TPUs needs their compiler, no TPU: "
            f"{os.path.basename(sys.executable)} -m pip install -c constraints.txt libtpu"
        )
    from jax.experimental import topologies

    try:
        described = topologies.get_topology_desc(f"{name}:{shape}", "tpu")
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise UserError(f"--topology {topology}: the TPU compiler refuses it: {reason}") from None
    return described.devices, find_chip(name)
