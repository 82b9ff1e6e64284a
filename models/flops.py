"""Counts the floating-point operations of a forward pass, parameter by parameter."""

import math
import re
from collections.abc import Sequence
from typing import Any

# A full-match pattern of parameter paths and how many rows are multiplied by such a matrix.
Uses = Sequence[tuple[str, int]]


def flatten_paths(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turns a nested dict into one from '/'-joined paths to leaves."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        flat |= flatten_paths(value, f"{path}/") if isinstance(value, dict) else {path: value}
    return flat


def matrix_flops(params: dict[str, Any], uses: Uses) -> dict[str, int]:
    """Returns path -> 2 size rows for every parameter that is a matrix in each layer.

    Leaves need a `shape` only; one under a component `layers` has an axis of layers, which counts
    into its size. The first pattern of `uses` that matches a path gives its rows. Raises KeyError
    for a matrix that no pattern matches.
    """
    flops = {}
    for path, leaf in flatten_paths(params).items():
        if len(leaf.shape) - ("layers" in path.split("/")) < 2:
            continue
        rows = next((rows for pattern, rows in uses if re.fullmatch(pattern, path)), None)
        if rows is None:
            raise KeyError(f"no use is known for the matrix {path}")
        flops[path] = 2 * math.prod(leaf.shape) * rows
    return flops


def attention_flops(*, layers: int, batch: int, queries: int, keys: int, inner_dim: int) -> int:
    """Returns the FLOPs of q k and of weights v, every pair counted even if a mask hides it."""
    return 2 * 2 * layers * batch * queries * keys * inner_dim
