"""The contract of a pruning rule."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from sparsity.select import Flat, Selector


class Step(NamedTuple):
    """What a rule sees when masks are chosen; all dictionaries hold the pruned parameters only."""

    # Parameters before this step's update; pruned ones are 0 (but not under straight-through).
    weights: Flat
    # Gradients of all weights, pruned ones included.
    gradients: Flat
    # True where a weight is kept.
    masks: Flat
    # Randomness of this step; rules that draw need one.
    key: jax.Array | None
    # Share of the target sparsity that is due now.
    share: jax.Array
    # How far the step is through the pruning window, in [0, 1].
    phase: jax.Array


class Rule(NamedTuple):
    """Masks at the start and masks from then on; pure functions that jit."""

    initial: Callable[[Flat, Selector, jax.Array | None], Flat]
    update: Callable[[Step, Selector], Flat]
    # Pruned weights keep their values, and the gradients of the masked forward pass, until the end.
    straight_through: bool = False


def random_numbers(shapes: Flat, key: jax.Array | None) -> Flat:
    """Returns uniform numbers in [0, 1) for every path, the same however they are sharded."""
    if key is None:
        raise ValueError("this pruning rule draws at random: give prune and its update a key")
    return {
        path: jax.random.uniform(jax.random.fold_in(key, i), shapes[path].shape)
        for i, path in enumerate(sorted(shapes))
    }
