"""Grows the layers of a state by whole copies, parameters and optimiser alike."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.methods.api import State
from experiments.methods.stacking import Stacking
from sparsity.plan import is_stacked, named_leaves

# What a block adds to the residual stream is a product with one of these.
_OUTPUTS = re.compile(r".*(attention/out|mlp/wo)(_bias)?")


def grow(cfg: Stacking, state: State, factor: int, new_optimizer: Callable[[Any], Any]) -> State:
    """Returns the state with every stack `factor` times as deep.

    `new_optimizer` makes the first optimiser state of the grown parameters. The number of steps
    and the key stay, so that the run goes on in the same stream of data and draws.
    """
    params = _map_stacked(lambda path, leaf: repeat(leaf, factor, cfg.order), state["params"])
    if cfg.new_outputs == "zero":
        params = _map_stacked(
            lambda path, leaf: (
                _zero_new(leaf, factor, cfg.order) if _OUTPUTS.fullmatch(path) else leaf
            ),
            params,
        )
    fresh = new_optimizer(params)
    if cfg.optimizer_state == "reset":
        return state | {"params": params, "opt": fresh}
    grown = _map_stacked(lambda path, leaf: repeat(leaf, factor, cfg.order), state["opt"])
    if cfg.optimizer_state == "fresh":
        leaves = dict(named_leaves(fresh))
        grown = _map_stacked(
            lambda path, leaf: _take_new(leaf, leaves[path], factor, cfg.order), grown
        )
    return state | {"params": params, "opt": grown}


def repeat(leaf: jax.Array, factor: int, order: str) -> jax.Array:
    """Repeats layers: ABAB to "append", AABB to "interleave"."""
    if order == "append":
        return jnp.concatenate([leaf] * factor)
    return jnp.repeat(leaf, factor, axis=0)


def is_new(depth: int, factor: int, order: str) -> jax.Array:
    """Which layers of the grown stack of this depth are copies, bool (depth,)."""
    index = jnp.arange(depth)
    return index >= depth // factor if order == "append" else index % factor > 0


def _take_new(old: jax.Array, new: jax.Array, factor: int, order: str) -> jax.Array:
    """Returns `new` for the copied layers and `old` for the others."""
    copies = is_new(len(old), factor, order).reshape(-1, *[1] * (old.ndim - 1))
    return jnp.where(copies, new, old)


def _zero_new(leaf: jax.Array, factor: int, order: str) -> jax.Array:
    return _take_new(leaf, jnp.zeros_like(leaf), factor, order)


def _map_stacked(function: Callable[[str, Any], Any], tree: Any) -> Any:
    """Maps function(path, leaf) over the leaves that stack layers; the others stay."""
    leaves = [
        function(path, leaf) if is_stacked(path) and leaf.ndim else leaf
        for path, leaf in named_leaves(tree)
    ]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)
