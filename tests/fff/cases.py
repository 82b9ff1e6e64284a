"""Layers, weights and tokens that the tests share."""

import jax.numpy as jnp
import numpy as np
import pytest

from fff import build
from fff.config import FFFConfig
from fff.soft import SoftTree
from fff.tables import Tables

# Widths below, at and off whole vectors; one tree and several; one level and many.
SHAPES = {
    "deep": (FFFConfig(depth=5), 24, 96),
    "odd width": (FFFConfig(trees=2, depth=2), 9, 37),
    "many trees": (FFFConfig(trees=16, depth=1, activation="relu"), 7, 16),
    "depth 0": (FFFConfig(trees=6, depth=0), 5, 8),
    "ties right": (FFFConfig(trees=3, depth=3, ties="right"), 11, 64),
}

needs_compiler = pytest.mark.skipif(
    not build.is_available(), reason="there is no C++ compiler here, or its cache is not writable"
)
KERNELS = [
    "xla",
    "dense",
    "pallas",
    pytest.param("cpp", marks=needs_compiler),
]


def weights(cfg: FFFConfig, width: int, dtype: str = "float32", seed: int = 0) -> Tables:
    generator = np.random.default_rng(seed)
    rows = cfg.trees * cfg.nodes_per_tree
    w_in, w_out = (generator.normal(0, width**-0.5, (rows, width)) for _ in range(2))
    bias = generator.normal(0, 0.3, rows)
    return Tables(jnp.asarray(w_in, dtype), jnp.asarray(bias, "float32"), jnp.asarray(w_out, dtype))


def tokens(count: int, width: int, seed: int = 1):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(count, width)), jnp.float32)


def soft_tree(cfg: FFFConfig, width: int, seed: int = 2) -> SoftTree:
    generator = np.random.default_rng(seed)
    gates, leaves = 2**cfg.depth - 1, 2**cfg.depth
    shapes = (
        *((gates, width), (gates,), (leaves, width, cfg.leaf_width), (leaves, cfg.leaf_width)),
        *((leaves, cfg.leaf_width, width), (leaves, width)),
    )
    return SoftTree(*(jnp.asarray(generator.normal(0, 0.4, s), jnp.float32) for s in shapes))
