"""What a chip can do, by its data sheet, and what the machine at hand can do, by measuring it."""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.errors import UserError, did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """Upper bounds of one device; per second and in bytes."""

    name: str
    # Floating-point operations of matrix products by element type; "" where none is known.
    flops: dict[str, float]
    memory: float
    memory_bandwidth: float
    # What one device sends to its neighbours along one axis of the network, both ways together.
    network_bandwidth: float
    # Seconds from one device to the next, and axes of the network.
    hop_s: float = 1e-6
    network_axes: int = 1
    # Devices that this network joins, and what one of them sends beyond.
    network_devices: int = 1 << 30
    slow_bandwidth: float = 6.25e9
    # Cycles in a second, for the compiler's own estimates; 0 where it makes none.
    clock: float = 0.0
    # Seconds that a kernel takes beside its work.
    kernel_s: float = 0.0

    def product_rate(self, dtype: str) -> float:
        return self.flops.get(dtype, self.flops["f32"])


def _tpu(name: str, bf16: float, memory_gb: float, bandwidth: float, **others: Any) -> Chip:
    # XLA multiplies float32 in one pass of bfloat16 unless a higher precision is asked for.
    return Chip(
        name=name,
        flops={"f32": bf16, "bf16": bf16},
        memory=memory_gb * 2**30,
        memory_bandwidth=bandwidth,
        **others,
    )


def _gpu(name: str, bf16: float, tf32: float, memory_gb: float, bandwidth: float, link: float):
    return Chip(
        name=name,
        flops={"f32": tf32, "bf16": bf16, "f16": bf16},
        memory=memory_gb * 1e9,
        memory_bandwidth=bandwidth,
        network_bandwidth=link,
        network_devices=8,
        slow_bandwidth=50e9,
    )


# TPUs: "How to Scale Your Model" (jax-ml.github.io/scaling-book, chapter 2), as are the 4.5e10 or
# 9e10 bytes/s a link and direction; the clock is what peak over (units · 2 · side²) gives. GPUs:
# NVIDIA's data sheets, dense rates; a GPU's step is compiled for CPU devices, so other kernels.
CHIPS = {
    "v4": _tpu(
        "v4", 2.75e14, 32, 1.2e12, network_bandwidth=9e10, network_axes=3,
        network_devices=4096, clock=1.05e9,
    ),
    "v5e": _tpu(
        "v5e", 1.97e14, 16, 8.1e11, network_bandwidth=9e10, network_axes=2,
        network_devices=256, clock=1.5e9,
    ),
    "v5p": _tpu(
        "v5p", 4.59e14, 95, 2.8e12, network_bandwidth=1.8e11, network_axes=3,
        network_devices=8960, clock=1.75e9,
    ),
    "v6e": _tpu(
        "v6e", 9.2e14, 32, 1.6e12, network_bandwidth=1.8e11, network_axes=2,
        network_devices=256, clock=1.75e9,
    ),
    "a100-40gb": _gpu("a100-40gb", 3.12e14, 1.56e14, 40, 1.555e12, 3e11),
    "a100-80gb": _gpu("a100-80gb", 3.12e14, 1.56e14, 80, 2.039e12, 3e11),
    "h100": _gpu("h100", 9.89e14, 4.94e14, 80, 3.35e12, 4.5e11),
    "h200": _gpu("h200", 9.89e14, 4.94e14, 141, 4.8e12, 4.5e11),
}  # fmt: skip

TPUS = ("v4", "v5e", "v5p", "v6e")


def find_chip(name: str) -> Chip:
    """The chip of this name, with the figures of its data sheet; `cpu` is measured here."""
    if name == "cpu":
        return measure_cpu()
    if name not in CHIPS:
        known = (*CHIPS, "cpu")
        raise UserError(
            f"{name}: no such chip.{did_you_mean(name, known)} Known: {', '.join(known)}."
        )
    return CHIPS[name]


def measure_cpu() -> Chip:
    """Measures this processor as one device: products, memory, and what a kernel takes at least.

    Products are measured at the size of a small model's, 2,048 rows of 128 to 256.
    """
    rows, narrow, wide = 2048, 128, 256
    left, right = jnp.ones((rows, narrow)), jnp.ones((narrow, wide))
    product = jax.jit(lambda a, b: a @ b)
    product_s = _seconds(lambda: product(left, right))
    # A fusion over an array that no cache holds, and one over an array that a cache may hold.
    kernel = jax.jit(lambda x: jnp.tanh(x * 1.5) + x)
    small, large = jnp.ones(1), jnp.ones(1 << 20)
    kernel_s, stream_s = _seconds(lambda: kernel(small)), _seconds(lambda: kernel(large))
    # Several kernels in a program cost less each than a program of one: the call itself goes.
    chain_length = 16
    chain = jax.jit(lambda x: _separate_kernels(x, chain_length))
    chain_s = _seconds(lambda: chain(small))
    rate = 2.0 * rows * narrow * wide / max(product_s - kernel_s, 1e-9)
    return Chip(
        name=f"this processor, {len(os.sched_getaffinity(0))} cores",
        flops={"f32": rate, "bf16": rate},
        memory=_physical_memory(),
        memory_bandwidth=2 * large.nbytes / max(stream_s - kernel_s, 1e-9),
        network_bandwidth=2 * large.nbytes / max(stream_s - kernel_s, 1e-9),
        kernel_s=max((chain_s - kernel_s) / (chain_length - 1), 1e-8),
    )


def _separate_kernels(x: jax.Array, count: int) -> jax.Array:
    for _ in range(count):
        x = jax.lax.optimization_barrier(jnp.tanh(x) * 1.5)
    return x


def _seconds(call: Callable[[], Any], repeats: int = 25) -> float:
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _physical_memory() -> float:
    return float(np.prod([os.sysconf(name) for name in ("SC_PAGE_SIZE", "SC_PHYS_PAGES")]))
