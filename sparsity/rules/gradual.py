"""Rules that start dense and prune more and more of what is left."""

import jax
import jax.numpy as jnp

from sparsity.config import PruningConfig
from sparsity.rules.base import Rule, Step, random_numbers
from sparsity.select import Flat, Selector, make_scores, map_paths
from sparsity.threshold import where_mask


def magnitude(cfg: PruningConfig) -> Rule:
    """Prunes the smallest |w| (Zhu & Gupta 2017, arXiv 1710.01878)."""
    del cfg

    def update(step: Step, select: Selector) -> Flat:
        return select.at(make_scores(kept_magnitude, step.masks, step.weights), step.share)

    return Rule(_dense, update)


def magnitude_ste(cfg: PruningConfig) -> Rule:
    """Prunes the smallest |w| for the forward pass only, so that weights may come back.

    Straight-through: gradients at the masked weights move the dense ones; at the end of the window
    the mask stays and the weights under it become 0.
    """
    del cfg
    return Rule(
        _dense,
        lambda step, select: select.at(make_scores(jnp.abs, step.weights), step.share),
        straight_through=True,
    )


def saliency(cfg: PruningConfig) -> Rule:
    """Prunes the smallest |w·g|, the first-order change of the loss.

    Molchanov et al. 2017 (arXiv 1611.06440), equation 9, for single weights.
    """
    del cfg

    def score(mask: jax.Array, weight: jax.Array, gradient: jax.Array) -> jax.Array:
        return kept_magnitude(mask, weight * gradient)

    def update(step: Step, select: Selector) -> Flat:
        return select.at(make_scores(score, step.masks, step.weights, step.gradients), step.share)

    return Rule(_dense, update)


def random(cfg: PruningConfig) -> Rule:
    """Prunes weights drawn at random: the baseline that any rule must beat."""
    del cfg

    def update(step: Step, select: Selector) -> Flat:
        numbers = random_numbers(step.weights, step.key)
        return select.at(make_scores(kept_magnitude, step.masks, numbers), step.share)

    return Rule(_dense, update)


def kept_magnitude(mask: jax.Array, x: jax.Array) -> jax.Array:
    """Returns |x|, and −1 at pruned weights so that none of them comes back."""
    return where_mask(mask, jnp.abs(x), -1)


def _dense(weights: Flat, select: Selector, key: jax.Array | None) -> Flat:
    del select, key
    return map_paths(lambda w: jnp.ones(w.shape, bool), weights)
