"""One tensor as kept values and where they lie: bit-mask or N:M indices, without any loss."""

import math
from typing import Any

import numpy as np

from sparsity.config import Pattern
from sparsity.cost import index_bits

_VALUES, _MASK, _INDEX = "::values", "::mask", "::index"


def encode(
    array: np.ndarray, pattern: Pattern | None, axis: int
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the arrays to store by name suffix, and the layout that `decode` needs.

    Without a pattern the array is stored whole. A zero is a weight whose bits are all 0, so −0 and
    NaN survive. An N:M tensor that holds more than N in a group is stored with a bit-mask.
    """
    shape = list(array.shape)
    if pattern is None:
        return {"": array}, {"form": "dense", "shape": shape}
    nonzero = _bits(array) != 0
    if pattern.kind == "n:m":
        kept, group = pattern.shape
        grouped = _groups(nonzero, group, axis)
        if grouped.sum(axis=1).max() <= kept:
            # Zeros fill up the groups that hold fewer than N.
            index = np.sort(np.argsort(~grouped, axis=1, kind="stable")[:, :kept], axis=1)
            values = np.take_along_axis(_groups(array, group, axis), index, axis=1).reshape(-1)
            layout = {"form": "n:m", "shape": shape, "axis": axis, "n": kept, "m": group}
            return {_VALUES: values, _INDEX: _pack_index(index, group)}, layout
    mask = np.packbits(nonzero.reshape(-1))
    return {_VALUES: array[nonzero], _MASK: mask}, {"form": "bitmask", "shape": shape}


def decode(parts: dict[str, np.ndarray], layout: dict[str, Any]) -> np.ndarray:
    """Returns the array that `encode` was given, bit for bit."""
    shape = tuple(layout["shape"])
    if layout["form"] == "dense":
        return parts[""]
    values = parts[_VALUES]
    if layout["form"] == "bitmask":
        flat = np.zeros(math.prod(shape), values.dtype)
        flat[np.unpackbits(parts[_MASK], count=flat.size).astype(bool)] = values
        return flat.reshape(shape)
    kept, group, axis = layout["n"], layout["m"], layout["axis"]
    index = _unpack_index(parts[_INDEX], values.size, group).reshape(-1, kept)
    grouped = np.zeros((index.shape[0], group), values.dtype)
    np.put_along_axis(grouped, index, values.reshape(-1, kept), axis=1)
    moved = list(shape)
    moved.append(moved.pop(axis))
    return np.ascontiguousarray(np.moveaxis(grouped.reshape(moved), -1, axis))


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _groups(array: np.ndarray, group: int, axis: int) -> np.ndarray:
    """Returns the groups along `axis` as rows, (groups, group size)."""
    return np.moveaxis(array, axis, -1).reshape(-1, group)


def _pack_index(index: np.ndarray, group: int) -> np.ndarray:
    shifts = np.arange(index_bits(group))
    return np.packbits((index.reshape(-1, 1) >> shifts) & 1 > 0)


def _unpack_index(packed: np.ndarray, count: int, group: int) -> np.ndarray:
    width = index_bits(group)
    bits = np.unpackbits(packed, count=count * width).reshape(count, width)
    return (bits.astype(np.int64) << np.arange(width)).sum(axis=1)
