"""Converted seconds against simulated devices, whose seconds are known."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.reference.base import Cost
from experiments.reference.convert import CHAIN, FUNCTION, PASS, PRODUCT, Workload, convert, ratios
from models.errors import UserError

# name → (kind, cost): products carry the bytes of their matrices, passes a few operations.
WORKLOADS = {
    "product_256": (PRODUCT, Cost(2 * 256**3, 12 * 256**2, 1)),
    "product_1024": (PRODUCT, Cost(2 * 1024**3, 12 * 1024**2, 1)),
    "product_2048": (PRODUCT, Cost(2 * 2048**3, 12 * 2048**2, 1)),
    "pass_16": (PASS, Cost(2**23, 12 * 2**22, 1)),
    "pass_128": (PASS, Cost(2**26, 12 * 2**25, 1)),
    "chain_64": (CHAIN, Cost(64 * 8192, 64 * 3072, 64)),
    "chain_256": (CHAIN, Cost(256 * 8192, 256 * 3072, 256)),
    "function_1": (FUNCTION, Cost(2**22, 12 * 2**18, 1, 2**22)),
}


class Simulated:
    """A device of known speeds; `overlap` is the p of the norm that adds its parts up."""

    def __init__(self, flops_per_s, bytes_per_s, s_per_kernel, overlap=1.0, functions_per_s=1e9):
        self.flops_per_s = flops_per_s
        self.bytes_per_s = bytes_per_s
        self.s_per_kernel = s_per_kernel
        self.overlap = overlap
        self.functions_per_s = functions_per_s

    def parts(self, cost):
        return (
            cost.flops / self.flops_per_s,
            cost.bytes / self.bytes_per_s,
            cost.kernels * self.s_per_kernel,
            cost.functions / self.functions_per_s,
        )

    def seconds(self, cost):
        values = self.parts(cost)
        if math.isinf(self.overlap):
            return max(values)
        highest = max(values)
        return highest * sum((v / highest) ** self.overlap for v in values) ** (1 / self.overlap)

    def calibrate(self):
        return {
            name: Workload(kind, "float32", self.seconds(cost), 0.01, cost)
            for name, (kind, cost) in WORKLOADS.items()
        }


class Timed:
    def __init__(self, seconds, relative_spread=0.01):
        self.seconds = seconds
        self.relative_spread = relative_spread


def converted(here, there, cost, seconds=None):
    timed = Timed(here.seconds(cost) if seconds is None else seconds)
    return convert(here.calibrate(), there.calibrate(), timed, cost, "float32")


CPU = Simulated(1e11, 2e10, 2e-6)
# Forty times the arithmetic, thirty times the memory, twenty times the functions, kernels that
# start more slowly.
GPU = Simulated(4e12, 6e11, 5e-6, functions_per_s=2e10)

ARITHMETIC = Cost(1e11, 1e6, 10)
MEMORY = Cost(1e6, 1e10, 10)
KERNELS = Cost(1e6, 1e6, 100_000)
FUNCTIONS = Cost(1e6, 1e6, 10, 1e9)
MIXED = Cost(2e10, 4e9, 2000, 1e8)


@pytest.mark.parametrize("overlap", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("cost", [ARITHMETIC, MEMORY, KERNELS, FUNCTIONS, MIXED])
def test_truth_lies_in_the_interval(cost, overlap):
    here, there = (
        Simulated(d.flops_per_s, d.bytes_per_s, d.s_per_kernel, overlap, d.functions_per_s)
        for d in (CPU, GPU)
    )
    found = converted(here, there, cost)
    assert found.low <= there.seconds(cost) <= found.high
    assert found.low <= found.seconds <= found.high


def test_functions_are_work_of_their_own():
    """A device without wide units for them is slower in these alone."""
    slow = Simulated(1e11, 2e10, 2e-6, functions_per_s=2e8)
    cost = Cost(2e10, 4e9, 2000, 5e8)
    found = converted(CPU, slow, cost)
    assert found.low <= slow.seconds(cost) <= found.high
    assert found.seconds == pytest.approx(slow.seconds(cost), rel=0.15)
    # Counted too few, they still hold the interval open.
    few = Cost(2e10, 4e9, 2000, 5e7)
    found = converted(CPU, slow, few, CPU.seconds(cost))
    assert found.low <= slow.seconds(cost) <= found.high


@pytest.mark.parametrize("cost", [ARITHMETIC, MEMORY, KERNELS, FUNCTIONS])
def test_pure_work_is_converted_by_its_own_kind(cost):
    """One ratio for all of it would be off by a factor of up to a hundred."""
    truth = GPU.seconds(cost)
    found = converted(CPU, GPU, cost)
    assert found.seconds == pytest.approx(truth, rel=0.15)
    assert found.high / found.low < 1.8


def test_a_mix_lies_between_its_kinds():
    found = converted(CPU, GPU, MIXED)
    ratio = found.seconds / CPU.seconds(MIXED)
    each = ratios(CPU.calibrate(), GPU.calibrate(), "float32")
    assert each[PASS].middle != pytest.approx(each[PRODUCT].middle, rel=0.1)
    assert min(r.low for r in each.values()) < ratio < max(r.high for r in each.values())
    assert "arithmetic" in found.how and "memory" in found.how


def test_what_the_cost_leaves_unexplained_widens_the_interval():
    """A loop's body is counted once: the rest of the time may be of any kind."""
    counted = Cost(MIXED.flops / 8, MIXED.bytes / 8, MIXED.kernels / 8, MIXED.functions / 8)
    here = CPU.seconds(MIXED)
    explained, unexplained = converted(CPU, GPU, MIXED), converted(CPU, GPU, counted, here)
    assert unexplained.low <= GPU.seconds(MIXED) <= unexplained.high
    assert unexplained.high - unexplained.low > explained.high - explained.low


def test_same_device_has_ratio_one():
    found = converted(CPU, CPU, MIXED)
    assert found.seconds == pytest.approx(CPU.seconds(MIXED))


speed = st.floats(0.02, 50.0)
parts_s = st.floats(0.0, 1.0)


@settings(max_examples=300)
@given(
    # Of arithmetic, memory, starting a kernel and functions there, as multiples of those here.
    speeds=st.tuples(speed, speed, speed, speed),
    overlap=st.floats(1.0, 20.0) | st.just(math.inf),
    # How long the parts take here, in seconds; one of them at least counts.
    work=st.tuples(st.floats(1e-3, 1.0), parts_s, parts_s, parts_s),
    miscounted=st.sampled_from([(1.0, 1.0), (0.3, 1.0), (0.1, 1.0), (1.0, 1.5), (1.0, 3.0)]),
)
def test_truth_lies_in_the_interval_of_any_mix(speeds, overlap, work, miscounted):
    """Also where loops are counted once, or bytes count that never leave a cache."""
    counted, bytes_too_many = miscounted
    here = Simulated(1e11, 2e10, 2e-6, overlap, 1e9)
    there = Simulated(
        1e11 * speeds[0], 2e10 * speeds[1], 2e-6 / speeds[2], overlap, 1e9 * speeds[3]
    )
    cost = Cost(work[0] * 1e11, work[1] * 2e10, work[2] / 2e-6, work[3] * 1e9)
    stated = Cost(
        cost.flops * counted,
        cost.bytes * counted * bytes_too_many,
        cost.kernels * counted,
        cost.functions * counted,
    )
    found = converted(here, there, stated, here.seconds(cost))
    truth = there.seconds(cost)
    assert found.low <= truth <= found.high
    assert 0 < found.low <= found.seconds <= found.high


def test_devices_without_common_workloads_are_refused():
    here = CPU.calibrate()
    there = {name: one for name, one in here.items() if one.kind != CHAIN}
    with pytest.raises(UserError, match="share no workload of kind chain"):
        convert(here, there, Timed(1.0), MIXED, "float32")
    with pytest.raises(UserError, match="kind product in bfloat16"):
        convert(here, here, Timed(1.0), MIXED, "bfloat16")


def test_empty_cost_is_refused():
    with pytest.raises(UserError, match="cost analysis of the program is empty"):
        convert(CPU.calibrate(), GPU.calibrate(), Timed(1.0), Cost(0, 0, 0), "float32")
