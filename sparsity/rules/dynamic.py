"""Rules that are sparse from the first step on: fixed masks, or masks that drop and regrow."""

import jax
import jax.numpy as jnp

from sparsity.config import PruningConfig
from sparsity.rules.base import Rule, Step, random_scores
from sparsity.select import Flat, Selector, map_paths


def static(cfg: PruningConfig) -> Rule:
    """Keeps a random mask from start to end."""
    del cfg
    return Rule(_random_masks, lambda step, select: step.masks)


def set_evolution(cfg: PruningConfig) -> Rule:
    """Drops the smallest |w| and regrows at random (SET; Mocanu et al. 2018, arXiv 1707.04780)."""

    def update(step: Step, select: Selector) -> Flat:
        grown = random_scores(step.weights, step.key)
        return _drop_and_grow(step, select, cfg.drop_fraction, grown)

    return Rule(_random_masks, update)


def rigl(cfg: PruningConfig) -> Rule:
    """Drops the smallest |w| and regrows where |g| is largest (Evci et al. 2020, arXiv 1911.11134).

    The replaced share falls with a cosine over the window: drop/2 · (1 + cos(π t)), equation 1.
    """

    def update(step: Step, select: Selector) -> Flat:
        drop = cfg.drop_fraction / 2 * (1 + jnp.cos(jnp.pi * step.phase))
        return _drop_and_grow(step, select, drop, map_paths(jnp.abs, step.gradients))

    return Rule(_random_masks, update)


def _random_masks(weights: Flat, select: Selector, key: jax.Array | None) -> Flat:
    return select.at(random_scores(weights, key), 1.0)


def _drop_and_grow(step: Step, select: Selector, drop: jax.Array | float, grow: Flat) -> Flat:
    """Replaces the `drop` share of kept weights, smallest |w| first, by the best of `grow`."""
    active = map_paths(lambda m, w: jnp.where(m, jnp.abs(w), -1), step.masks, step.weights)
    survivors = select.keep_share(active, 1.0 - drop)
    return select.at(map_paths(lambda m, g: jnp.where(m, jnp.inf, g), survivors, grow), 1.0)
