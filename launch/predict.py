"""The time of a step from its compiled program: a roofline for every kernel, summed."""

import dataclasses
from collections.abc import Sequence

from launch.chips import Chip
from launch.cost import COLLECTIVES, Kernel


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Where one step's time goes on each device; seconds and bytes of one step."""

    flops: float
    nbytes: float
    # Bytes that a device sends, by kind of collective.
    sent: dict[str, float]
    # Time of kernels that products, or main memory, bound; of collectives; of starting kernels.
    compute_s: float
    memory_s: float
    network_s: float
    kernels_s: float
    # The compiler's own estimate of the kernels' time, collectives apart; None where it has none.
    compiler_s: float | None

    @property
    def step_s(self) -> float:
        """Kernels run one after the other, collectives beside none of them."""
        return self.compute_s + self.memory_s + self.network_s + self.kernels_s

    @property
    def bound(self) -> str:
        """What most of the time goes to."""
        parts = {
            "products": self.compute_s,
            "memory bandwidth": self.memory_s,
            "network": self.network_s,
            "starting kernels": self.kernels_s,
        }
        return max(parts, key=lambda name: parts[name])


def predict(kernels: Sequence[Kernel], chip: Chip) -> Prediction:
    """Each kernel takes the longer of its products and its memory accesses (Williams et al. 2009).

    A collective takes what a ring over its devices does: bytes sent over bandwidth, and a hop for
    each of the steps along the axes of the network.
    """
    compute_s = memory_s = network_s = kernels_s = flops = nbytes = cycles = 0.0
    sent: dict[str, float] = {}
    for kernel in kernels:
        if kernel.opcode in COLLECTIVES:
            network_s += kernel.times * collective_s(kernel, chip)
            sent[kernel.opcode] = sent.get(kernel.opcode, 0.0) + kernel.times * kernel.sent
            continue
        product_s = kernel.flops / chip.product_rate(kernel.dtype)
        access_s = kernel.nbytes / chip.memory_bandwidth
        if product_s >= access_s:
            compute_s += kernel.times * product_s
        else:
            memory_s += kernel.times * access_s
        kernels_s += kernel.times * chip.kernel_s
        flops += kernel.times * kernel.flops
        nbytes += kernel.times * kernel.nbytes
        cycles += kernel.times * kernel.cycles
    return Prediction(
        flops=flops,
        nbytes=nbytes,
        sent=sent,
        compute_s=compute_s,
        memory_s=memory_s,
        network_s=network_s,
        kernels_s=kernels_s,
        compiler_s=cycles / chip.clock if cycles and chip.clock else None,
    )


def collective_s(kernel: Kernel, chip: Chip) -> float:
    """Seconds of one collective, on the slower network where its group is larger than the fast."""
    within = kernel.group <= chip.network_devices
    bandwidth = chip.network_bandwidth if within else chip.slow_bandwidth
    side = kernel.group ** (1 / chip.network_axes)
    return kernel.sent / bandwidth + 2 * chip.network_axes * max(side - 1, 0) * chip.hop_s
