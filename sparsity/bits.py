"""Masks at one bit a weight, for checkpoints and files."""

from typing import Any

import jax.numpy as jnp


def pack(masks: dict[str, Any], xp: Any = jnp) -> dict[str, Any]:
    """Returns uint8 arrays that hold eight weights a byte along the last axis, padded with 0.

    `xp` is jax.numpy (inside or outside jit) or numpy. The leading axes stay, so that their
    sharding does.
    """
    return {path: xp.packbits(mask, axis=-1) for path, mask in masks.items()}


def unpack(packed: dict[str, Any], shapes: dict[str, tuple[int, ...]], xp: Any = jnp) -> dict:
    """Returns the bool masks of the given shapes; the inverse of `pack`."""
    return {
        path: xp.unpackbits(bits, axis=-1, count=shapes[path][-1]).astype(bool)
        for path, bits in packed.items()
    }
