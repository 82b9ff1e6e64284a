"""A layer's forward and backward pass by each kernel, from which `kernels` chooses."""

import statistics
from typing import Any

import jax
import jax.numpy as jnp

from fff import build
from fff.config import FFFConfig, hard_trees
from fff.interleave import interleave, ratio
from fff.kernels import hard_path
from fff.random_tables import random_tables, random_tokens

_TOKENS = 1024
# With shares of used neurons from 1/341 up to 2/3.
_TREES = ("1x11", "4x9", "16x7", "128x4", "512x2", "1536x1")
# XLA keeps the gathered rows of all trees, and scatters gradients row by row: with more neurons
# that takes gigabytes and seconds, where all neurons take a fraction of one.
_MOST_GATHERED = 40


def time_training(cfg: FFFConfig, model_dim: int, seconds: float) -> list[dict[str, Any]]:
    """Returns, for these trees and `cfg`'s, milliseconds of evaluation and of a training step."""
    names = dict.fromkeys((f"{cfg.trees}x{cfg.depth}", *_TREES))
    return [_time(hard_trees(name), model_dim, seconds) for name in names]


def _time(cfg: FFFConfig, model_dim: int, seconds: float) -> dict[str, Any]:
    x_TD, tables = random_tokens(_TOKENS, model_dim), random_tables(cfg, model_dim)
    kernels = ["dense", "xla"]
    if jax.default_backend() == "cpu" and build.is_available():
        kernels.append("cpp")
    calls = {}
    for kernel in kernels:
        if kernel == "xla" and cfg.used_neurons > _MOST_GATHERED:
            continue

        def loss(x: Any, tables: Any, kernel: str = kernel) -> jax.Array:
            return jnp.sum(jnp.square(hard_path(cfg, x, tables, kernel)))

        def output(x: Any, tables: Any, kernel: str = kernel) -> jax.Array:
            return hard_path(cfg, x, tables, kernel)

        for what, function in (("forward", output), ("training", jax.grad(loss, argnums=(0, 1)))):
            compiled = jax.jit(function)
            calls[f"{what} {kernel}"] = lambda compiled=compiled: compiled(x_TD, tables)
    times = interleave(calls, seconds, rounds=3)
    return {
        "trees": f"{cfg.trees}x{cfg.depth}",
        "share": cfg.used_neurons / cfg.num_neurons,
        "milliseconds": {name: 1e3 * statistics.median(t) for name, t in times.items()},
        "speedup": {
            name: ratio(times, f"{name.split()[0]} dense", name)
            for name in times
            if not name.endswith("dense")
        },
    }
