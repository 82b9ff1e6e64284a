"""Reference devices: in whose seconds a budget counts, and how their seconds are found."""

from experiments.reference.base import Anchor, Converted, Cost, ProgramId, Reference, ThisDevice
from experiments.reference.cost import cost_of
from experiments.reference.identify import identify
from experiments.reference.store import HERE, find_reference

__all__ = [
    "HERE",
    "Anchor",
    "Converted",
    "Cost",
    "ProgramId",
    "Reference",
    "ThisDevice",
    "cost_of",
    "find_reference",
    "identify",
]
