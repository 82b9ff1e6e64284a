"""What a compiled program costs a device: products, bytes of main memory, bytes on the network."""

import dataclasses
import math
import re

import numpy as np

from launch.hlo import Array, Hlo, Instruction

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "ragged-all-to-all",
)

# Operations that make no access of their own.
_FREE = {
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "iota",
    "partition-id", "replica-id", "opt-barrier", "domain", "copy-done", "slice-done", "async-done",
    "async-update", *(f"{name}-done" for name in COLLECTIVES),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kind of kernel of a step, on one device."""

    opcode: str
    # Runs in one step; below 1 for what runs every few steps.
    times: float
    # Of one run: floating-point operations of its matrix products, and their element type.
    flops: float
    dtype: str
    # Of one run: bytes that it reads from and writes to main memory.
    nbytes: float
    # Of one run: the bytes that a device sends over the network, in a ring.
    sent: float
    # How many devices take part, for a collective.
    group: int
    # Of one run: the compiler's own estimate of its cycles, where it makes one (TPU).
    cycles: float


def kernels(program: Hlo) -> list[Kernel]:
    """The kernels of a program, in order, loops counted in `times`."""
    found = []
    for computation, instruction, times in program.executed():
        if instruction.opcode in _FREE or times == 0:
            continue
        flops, dtype = _flops(program, computation, instruction)
        group = _group_size(instruction)
        cycles = re.search(r'"estimated_cycles":"(\d+)"', instruction.attributes)
        found.append(
            Kernel(
                opcode=instruction.opcode.removesuffix("-start"),
                times=times,
                flops=flops,
                dtype=dtype,
                nbytes=_bytes(program, computation, instruction),
                sent=_sent(instruction, group),
                group=group,
                cycles=float(cycles[1]) if cycles else 0.0,
            )
        )
    return found


def _operands(program: Hlo, computation: str, instruction: Instruction) -> list[Array]:
    """The single arrays that an instruction reads."""
    known = program.computations[computation]
    given = [known[name].outputs for name in instruction.operands if name in known]
    return [arrays[0] for arrays in given if len(arrays) == 1]


def _flops(program: Hlo, computation: str, instruction: Instruction) -> tuple[float, str]:
    """Floating-point operations of the products in an instruction and what is inside it."""
    if "calls" in instruction.called:
        found = [
            _flops(program, name, inner)
            for name in instruction.called["calls"]
            for inner in program.computations[name].values()
        ]
        total = sum(flops for flops, _ in found)
        return total, next((dtype for flops, dtype in found if flops), "")
    if instruction.opcode not in ("dot", "convolution"):
        return 0.0, ""
    left, right = _operands(program, computation, instruction)
    output = instruction.outputs[0]
    if instruction.opcode == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([0-9,]*)\}", instruction.attributes)
        axes = [int(axis) for axis in contracted[1].split(",") if axis] if contracted else []
        return 2.0 * output.size * math.prod(left.shape[axis] for axis in axes), left.dtype
    return _convolution_flops(instruction, left, right, output), left.dtype


def _convolution_flops(instruction: Instruction, left: Array, right: Array, output: Array) -> float:
    """2 · (pairs of an input and a kernel element that meet), padding and holes left out.

    TPU compilers write batched products as convolutions in which most pairs meet padding.
    """
    attributes = instruction.attributes
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    if labels is None:
        raise ValueError(f"{instruction.name}: a convolution without dim_labels")
    of_left, of_right, of_output = labels[1], labels[2], labels[3]
    pairs = output.shape[of_output.index("b")] * output.shape[of_output.index("f")]
    pairs *= right.shape[of_right.index("i")]
    window = re.search(r"window=\{([^}]*)\}", attributes)
    fields = dict(part.split("=") for part in window[1].split()) if window else {}
    spatial = sorted(label for label in of_output if label.isdigit())
    for axis, label in enumerate(spatial):

        def field(name: str, default: int, axis: int = axis) -> int:
            return int(fields[name].split("x")[axis]) if name in fields else default

        low = int(fields["pad"].split("x")[axis].split("_")[0]) if "pad" in fields else 0
        dilation = field("lhs_dilate", 1)
        size = left.shape[of_left.index(label)]
        places = np.arange(output.shape[of_output.index(label)])[:, None] * field("stride", 1)
        offsets = np.arange(right.shape[of_right.index(label)])[None] * field("rhs_dilate", 1)
        at = places + offsets - low
        meets = (at >= 0) & (at <= (size - 1) * dilation) & (at % dilation == 0)
        pairs *= int(meets.sum())
    return 2.0 * pairs


def _bytes(program: Hlo, computation: str, instruction: Instruction) -> float:
    """Bytes of main memory that an instruction reads and writes."""
    opcode = instruction.opcode
    outputs = sum(array.nbytes for array in instruction.outputs if array.in_main_memory)
    if opcode in ("copy-start", "slice-start", "async-start"):
        # (destination, source, …): the smaller of the two is what moves.
        moved = min(array.nbytes for array in instruction.outputs[:2])
        return moved * sum(array.in_main_memory for array in instruction.outputs[:2])
    operands = _operands(program, computation, instruction)
    if opcode in ("dynamic-slice", "slice", "gather"):
        return 2.0 * outputs
    if opcode == "dynamic-update-slice":
        return 2.0 * operands[1].nbytes
    read = sum(array.nbytes for array in operands if array.in_main_memory)
    if opcode == "fusion":
        read, outputs = _fusion_bytes(program, computation, instruction, outputs)
    return float(read + outputs)


def _fusion_bytes(
    program: Hlo, computation: str, instruction: Instruction, outputs: int
) -> tuple[int, int]:
    """Bytes that a fusion reads and writes: of an array that it only cuts from, the cut."""
    inside = program.computations[instruction.called["calls"][0]]
    parameters = {}
    for inner in inside.values():
        number = re.match(r"parameter\((\d+)\)", inner.attributes)
        if inner.opcode == "parameter" and number:
            parameters[int(number[1])] = inner.name
    known = program.computations[computation]
    read = 0
    for index, name in enumerate(instruction.operands):
        given = known[name].outputs if name in known else ()
        if len(given) != 1 or not given[0].in_main_memory:
            continue
        users = [inner for inner in inside.values() if parameters.get(index) in inner.operands]
        cuts = [
            _cut(inner, inside)
            for inner in users
            if inner.opcode in ("dynamic-slice", "slice", "gather")
            or (inner.opcode == "dynamic-update-slice" and inner.operands[0] == parameters[index])
        ]
        read += sum(cuts) if len(cuts) == len(users) else given[0].nbytes
    root = next((inner for inner in inside.values() if inner.is_root), None)
    if root is not None:
        # A tuple at the end, or a bitcast of what was written, hides the update from view.
        roots = [inside[name] for name in root.operands] if root.opcode == "tuple" else [root]
        while len(roots) == 1 and roots[0].opcode in ("bitcast", "copy") and roots[0].operands:
            roots = [inside[roots[0].operands[0]]]
        for one in roots:
            if one.opcode == "dynamic-update-slice" and one.outputs[0].in_main_memory:
                outputs += _cut(one, inside) - min(one.outputs[0].nbytes, outputs)
    return read, outputs


def _cut(instruction: Instruction, inside: dict[str, Instruction]) -> int:
    """Bytes of the part that a slice reads, or that an update replaces."""
    if instruction.opcode == "dynamic-update-slice":
        return inside[instruction.operands[1]].outputs[0].nbytes
    return sum(array.nbytes for array in instruction.outputs)


def _group_size(instruction: Instruction) -> int:
    """Devices of one group of a collective; 1 where the text does not say."""
    if not instruction.opcode.startswith(COLLECTIVES):
        return 1
    text = instruction.attributes
    if found := re.search(r"replica_groups=\{\{([0-9,]+)\}", text):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", text):
        return int(found[1])
    # A mesh whose devices are not in their own order says in between which they are.
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}", text):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", found[2]))
    if "source_target_pairs={{" in text:
        return 2
    if found := re.search(r"replica_groups=(?!\{\})\S.{0,60}", text):
        raise ValueError(f"{instruction.name}: {found[0]}: which devices take part?")
    return 1


def _sent(instruction: Instruction, group: int) -> float:
    """Bytes that one device sends in a ring of `group` devices (Patarasu and Yuan 2009)."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode not in COLLECTIVES or group < 2:
        return 0.0
    arrays = instruction.outputs
    # A start gives (operands, results, …); the results are what is gathered or reduced.
    if instruction.opcode.endswith("-start") and len(arrays) >= 2 and opcode != "all-reduce":
        arrays = arrays[1:2]
    nbytes = sum(array.nbytes for array in arrays)
    if opcode == "all-reduce":
        return 2.0 * nbytes * (group - 1) / group
    if opcode == "reduce-scatter":
        # The result is one of `group` parts of what is reduced.
        return float(nbytes * (group - 1))
    if opcode == "collective-permute":
        return float(nbytes)
    return nbytes * (group - 1) / group
