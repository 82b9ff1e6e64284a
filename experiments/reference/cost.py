"""What a compiled program does, by XLA's own count."""

import re
from typing import Any

from experiments.reference.base import Cost

# Instructions that start no kernel.
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota")
_INSTRUCTION = re.compile(r"^  (?:ROOT )?%?[\w.\-]+ = .*? ([a-z][a-z0-9\-]*)\(")


def cost_of(compiled: Any) -> Cost:
    """The cost of one call of a compiled `jax.stages.Compiled`, on one device.

    XLA counts the body of a loop once, however often it runs: a program with scanned layers or
    microbatches does more than this says, and `convert` leaves what stays unexplained open.
    """
    counted = compiled.cost_analysis() or {}
    return Cost(
        flops=float(counted.get("flops", 0.0)),
        bytes=float(counted.get("bytes accessed", 0.0)),
        kernels=float(count_kernels(compiled.as_text())),
        functions=float(counted.get("transcendentals", 0.0)),
    )


def count_kernels(hlo: str) -> int:
    """Instructions of the entry computation that do work, in the text of an optimised module."""
    entry = hlo.partition("\nENTRY ")[2]
    found = (_INSTRUCTION.match(line) for line in entry.splitlines())
    return sum(1 for match in found if match and match[1] not in _FREE)
