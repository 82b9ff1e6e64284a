"""Rules that start dense and prune more and more of what is left."""

import jax
import jax.numpy as jnp

from sparsity.config import PruningConfig
from sparsity.rules.base import Rule, Step, random_scores
from sparsity.select import Flat, Selector, map_paths


def magnitude(cfg: PruningConfig) -> Rule:
    """Prunes the smallest |w| (Zhu & Gupta 2017, arXiv 1710.01878)."""
    del cfg
    return Rule(_dense, lambda step, select: select.at(_kept(step, _absolute(step)), step.share))


def magnitude_ste(cfg: PruningConfig) -> Rule:
    """Prunes the smallest |w| for the forward pass only, so that weights may come back.

    Straight-through: gradients at the masked weights move the dense ones; at the end of the window
    the mask stays and the weights under it become 0.
    """
    del cfg
    return Rule(_dense, lambda step, select: select.at(_absolute(step), step.share), True)


def saliency(cfg: PruningConfig) -> Rule:
    """Prunes the smallest |w·g|, the first-order change of the loss (Molchanov et al. 2017)."""
    del cfg

    def update(step: Step, select: Selector) -> Flat:
        scores = map_paths(lambda w, g: jnp.abs(w * g), step.weights, step.gradients)
        return select.at(_kept(step, scores), step.share)

    return Rule(_dense, update)


def random(cfg: PruningConfig) -> Rule:
    """Prunes weights drawn at random: the baseline that any rule must beat."""
    del cfg

    def update(step: Step, select: Selector) -> Flat:
        return select.at(_kept(step, random_scores(step.weights, step.key)), step.share)

    return Rule(_dense, update)


def _dense(weights: Flat, select: Selector, key: jax.Array | None) -> Flat:
    del select, key
    return map_paths(lambda w: jnp.ones(w.shape, bool), weights)


def _absolute(step: Step) -> Flat:
    return map_paths(jnp.abs, step.weights)


def _kept(step: Step, scores: Flat) -> Flat:
    """Returns the scores with −1 at pruned weights, so that none of them comes back."""
    return map_paths(lambda m, s: jnp.where(m, s, -1), step.masks, scores)
