"""Reads a compiled program's text: its computations, and how often each instruction runs."""

import dataclasses
import math
import re
from collections.abc import Iterator

# Bits of an element; types without a size (tokens) move nothing.
_BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "f4e2m1fn": 4, "s8": 8, "u8": 8,
    "f8e4m3fn": 8, "f8e5m2": 8, "s16": 16, "u16": 16, "f16": 16, "bf16": 16, "s32": 32, "u32": 32,
    "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip

_HEADER = re.compile(r"^(ENTRY )?%?(\S+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?(\S+) = (.*)$")
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\](?:\{([^{}]*)\})?")
_OPCODE = re.compile(r"([a-z][a-z0-9-]*)\(")
_CALLED = re.compile(
    r"(calls|to_apply|body|condition|branch_computations|true_computation|false_computation)="
    r"(\{[^}]*\}|%?[\w.\-]+)"
)
_COMMENT = re.compile(r"/\*.*?\*/")


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of a program: its type, its sizes, and whether it lies in the large memory."""

    dtype: str
    shape: tuple[int, ...]
    # False for what the compiler keeps in the chip's own fast memory.
    in_main_memory: bool = True

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return -(-self.size * _BITS.get(self.dtype, 0) // 8)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One operation of a program."""

    name: str
    opcode: str
    # What it makes: one array, or those of a tuple.
    outputs: tuple[Array, ...]
    operands: tuple[str, ...]
    # The computations that it calls, by the role in which it names them.
    called: dict[str, tuple[str, ...]]
    # Everything after the operands.
    attributes: str
    is_root: bool


@dataclasses.dataclass(frozen=True)
class Hlo:
    """A program: computations by name, each a list of instructions."""

    computations: dict[str, dict[str, Instruction]]
    entry: str

    def executed(
        self, computation: str | None = None, times: int = 1
    ) -> Iterator[tuple[str, Instruction, int]]:
        """(computation, instruction, how often) of all that runs, with loops multiplied out.

        What is inside a fusion is not listed: it is one kernel. Of a conditional the branch with
        more products runs; of branches without any, the shorter one (masks are seldom updated).
        """
        name = computation or self.entry
        for instruction in self.computations[name].values():
            if instruction.opcode == "while":
                trips = times * self.trip_count(instruction)
                yield from self.executed(instruction.called["body"][0], trips)
            elif instruction.opcode == "conditional":
                yield from self.executed(self._likely_branch(instruction), times)
            elif instruction.opcode == "call":
                yield from self.executed(instruction.called["to_apply"][0], times)
            else:
                yield name, instruction, times

    def trip_count(self, loop: Instruction) -> int:
        """How often a loop runs: as the compiler says, or the constant its counter is held to."""
        known = re.search(r'"?known_trip_count"?:\{"?n"?:"?(\d+)', loop.attributes)
        if known:
            return int(known[1])
        condition = self.computations[loop.called["condition"][0]]
        bounds = []
        for instruction in self._with_fused(condition):
            found = re.match(r"constant\((-?\d+)\)", instruction.attributes)
            if instruction.opcode == "constant" and found:
                bounds.append(int(found[1]))
        # A loop whose end is not a constant is counted once, as XLA's own analysis does.
        return max(bounds, default=1)

    def _with_fused(self, computation: dict[str, Instruction]) -> Iterator[Instruction]:
        for instruction in computation.values():
            yield instruction
            for name in instruction.called.get("calls", ()):
                yield from self._with_fused(self.computations[name])

    def _likely_branch(self, conditional: Instruction) -> str:
        branches = [name for names in conditional.called.values() for name in names]

        def weight(name: str) -> tuple[bool, int]:
            run = list(self.executed(name))
            inner = [one for _, top, _ in run for one in (top, *self.fused(top))]
            products = any(one.opcode in ("dot", "convolution") for one in inner)
            return products, len(run) if products else -len(run)

        return max(branches, key=weight)

    def fused(self, instruction: Instruction) -> list[Instruction]:
        """The instructions inside a fusion, nested ones included; none for other operations."""
        if "calls" not in instruction.called:
            return []
        inside = self.computations[instruction.called["calls"][0]]
        return list(self._with_fused(inside))


def parse(text: str) -> Hlo:
    """Reads the text of an optimised module, as `compiled.as_text()` gives it."""
    computations: dict[str, dict[str, Instruction]] = {}
    current: dict[str, Instruction] = {}
    entry = ""
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            current = computations.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
            continue
        match = _INSTRUCTION.match(line)
        if match:
            current[match[1]] = _instruction(match[1], match[2], "ROOT %" in line[:12])
    return Hlo(computations, entry)


def _instruction(name: str, rest: str, is_root: bool) -> Instruction:
    opcode_at = _OPCODE.search(rest, _end_of_type(rest))
    if opcode_at is None:
        raise ValueError(f"not an instruction: {rest[:80]}")
    opcode, start = opcode_at[1], opcode_at.end()
    end = _closing(rest, start - 1)
    inside, attributes = rest[start:end], rest[end + 1 :]
    operands = tuple(re.findall(r"%([\w.\-]+)", _COMMENT.sub("", inside)))
    if opcode in ("constant", "parameter"):
        attributes, operands = f"{opcode}({inside}){attributes}", ()
    called = {
        role: tuple(part.strip().lstrip("%") for part in names.strip("{}").split(","))
        for role, names in _CALLED.findall(attributes)
    }
    outputs = tuple(arrays_of(rest[: opcode_at.start()]))
    return Instruction(name, opcode, outputs, operands, called, attributes, is_root)


def arrays_of(text: str) -> Iterator[Array]:
    """The arrays that a type names."""
    for dtype, sizes, layout in _ARRAY.findall(text):
        shape = tuple(int(size) for size in sizes.split(",") if size)
        yield Array(dtype, shape, in_main_memory="S(" not in layout)


def _end_of_type(rest: str) -> int:
    """Where the type of the output ends: a tuple's brackets hold layouts with brackets."""
    return _closing(rest, 0) if rest.startswith("(") else 0


def _closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    raise ValueError(f"unclosed bracket: {text[:80]}")
