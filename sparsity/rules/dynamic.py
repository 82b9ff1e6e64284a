"""Rules that are sparse from the first step on: fixed masks, or masks that drop and regrow."""

import jax
import jax.numpy as jnp

from sparsity.config import PruningConfig
from sparsity.rules.base import Rule, Step, random_numbers
from sparsity.rules.gradual import kept_magnitude
from sparsity.select import Flat, Selector, make_scores
from sparsity.threshold import where_mask


def static(cfg: PruningConfig) -> Rule:
    """Keeps a random mask, or that of a sparse start, from the first step to the last."""
    del cfg
    return Rule(_random_masks, lambda step, select: step.masks)


def set_evolution(cfg: PruningConfig) -> Rule:
    """Drops the smallest |w| and regrows at random (SET; Mocanu et al. 2018, arXiv 1707.04780)."""

    def update(step: Step, select: Selector) -> Flat:
        numbers = random_numbers(step.weights, step.key)
        return _drop_and_grow(step, select, cfg.drop_fraction, numbers)

    return Rule(_random_masks, update)


def rigl(cfg: PruningConfig) -> Rule:
    """Drops the smallest |w| and regrows where |g| is largest (Evci et al. 2020, arXiv 1911.11134).

    The replaced share falls with a cosine over the window: drop/2 · (1 + cos(π t)), equation 1.
    """

    def update(step: Step, select: Selector) -> Flat:
        drop = cfg.drop_fraction / 2 * (1 + jnp.cos(jnp.pi * step.phase))
        return _drop_and_grow(step, select, drop, step.gradients)

    return Rule(_random_masks, update)


def _random_masks(weights: Flat, select: Selector, key: jax.Array | None) -> Flat:
    """Draws masks; weights that are zero already go first, so that a sparse start keeps its own."""
    return select.at(make_scores(_nonzero_first, weights, random_numbers(weights, key)), 1.0)


def _nonzero_first(w: jax.Array, number: jax.Array) -> jax.Array:
    return jnp.where(w != 0, 1.0 + number, number)


def _drop_and_grow(step: Step, select: Selector, drop: jax.Array | float, grow: Flat) -> Flat:
    """Replaces the `drop` share of kept weights, smallest |w| first, by the largest |grow|."""
    survivors = select.keep_share(make_scores(kept_magnitude, step.masks, step.weights), 1.0 - drop)

    def survivors_first(survives: jax.Array, x: jax.Array) -> jax.Array:
        return where_mask(survives, jnp.inf, jnp.abs(x))

    return select.at(make_scores(survivors_first, survivors, grow), 1.0)
