"""Sophia-G and Sophia-H: updates clipped by a running diagonal of the curvature.

Liu et al. 2023 (arXiv 2305.14342), algorithms 1 to 3. Written here rather than taken from
optax.contrib, which estimates the diagonal inside the update, so that its cost could not be charged
by count, and corrects the bias of the first moment, which the paper does not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from experiments.config import OptimizerConfig, SophiaConfig
from experiments.optimizers.scales import clip_by_global_norm
from models.api import Batch, Model
from models.losses import token_losses


class SophiaState(NamedTuple):
    """Running means of the gradient and of the diagonal of the curvature."""

    momentum: Any
    curvature: Any


def scale_by_sophia(cfg: OptimizerConfig) -> optax.GradientTransformation:
    """m ← β₁ m + (1 − β₁) g; the direction is clip(m / max(γ h, ε), ±1).

    h changes only by `update_curvature`. With a curvature of 0, as before its first estimate, a
    weight moves by the sign of its momentum.
    """
    settings = cfg.sophia or SophiaConfig()

    def init(params: Any) -> SophiaState:
        return SophiaState(optax.tree.zeros_like(params), optax.tree.zeros_like(params))

    def update(grads: Any, state: SophiaState, params: Any = None) -> tuple[Any, SophiaState]:
        momentum = optax.tree.update_moment(grads, state.momentum, cfg.beta1, 1)
        direction = jax.tree.map(
            lambda m, h: jnp.clip(m / jnp.maximum(settings.gamma * h, cfg.epsilon), -1, 1),
            momentum,
            state.curvature,
        )
        return direction, SophiaState(momentum, state.curvature)

    return optax.GradientTransformation(init, update)


def update_curvature(
    cfg: OptimizerConfig, model: Model, params: Any, opt_state: Any, parts: Batch, key: jax.Array
) -> Any:
    """Returns the optimiser's state with h ← β₂ h + (1 − β₂) ĥ.

    `parts` are microbatches, arrays (parts, examples, …), over which ĥ is one estimate.
    """
    settings = cfg.sophia or SophiaConfig()
    estimate = gauss_newton_diagonal if cfg.name == "sophia_g" else hutchinson_diagonal
    found = estimate(model, params, parts, key, settings.hessian_clip_norm)

    def one(node: Any) -> Any:
        if not _is_state(node):
            return node
        return node._replace(
            curvature=optax.tree.update_moment(found, node.curvature, cfg.beta2, 1)
        )

    return jax.tree.map(one, opt_state, is_leaf=_is_state)


def gauss_newton_diagonal(
    model: Model, params: Any, parts: Batch, key: jax.Array, clip_norm: float = 0.0
) -> Any:
    """Gauss-Newton-Bartlett: ĥ = B ĝ², ĝ the mean gradient of B sampled predictions.

    Labels are drawn from the model's own distribution over the vocabulary, at every position that
    is predicted, and no other. Gradients of all parts are added up before they are squared. The
    expectation over labels is the diagonal of the Gauss-Newton matrix of the mean loss.
    """

    def sampled_loss(params: Any, part: Batch, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = model.apply(params, part)
        labels = jax.random.categorical(key, jax.lax.stop_gradient(logits))
        weights = prediction_weights(part)
        return jnp.sum(token_losses(logits, labels)["nll"] * weights), jnp.sum(weights)

    total, count = _sum_over_parts(jax.grad(sampled_loss, has_aux=True), params, parts, key)
    mean = _clipped(jax.tree.map(lambda g: g / count.astype(g.dtype), total), clip_norm)
    return jax.tree.map(lambda g: count.astype(g.dtype) * jnp.square(g), mean)


def hutchinson_diagonal(
    model: Model, params: Any, parts: Batch, key: jax.Array, clip_norm: float = 0.0
) -> Any:
    """Hutchinson: ĥ = u ⊙ (H u) with u ~ N(0, 1) and H the Hessian of the mean loss."""
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.fold_in(key, 0), len(leaves))
    probe = jax.tree.unflatten(
        structure,
        [
            jax.random.normal(k, leaf.shape, leaf.dtype)
            for k, leaf in zip(keys, leaves, strict=True)
        ],
    )

    def product(params: Any, part: Batch, key: jax.Array) -> tuple[Any, jax.Array]:
        def loss(params: Any) -> tuple[jax.Array, jax.Array]:
            return model.losses(params, part)["loss"]

        gradient = jax.grad(loss, has_aux=True)
        _, curved, count = jax.jvp(gradient, (params,), (probe,), has_aux=True)
        return curved, count

    total, count = _sum_over_parts(product, params, parts, key)
    mean = jax.tree.map(lambda c, u: u * c / count.astype(c.dtype), total, probe)
    return _clipped(mean, clip_norm)


def prediction_weights(batch: Batch) -> jax.Array:
    """Returns the weight of each prediction: masked positions of BERT, targets of T5."""
    if "masked_weights" in batch:
        return batch["masked_weights"].astype(jnp.float32)
    return (batch["targets"] != 0).astype(jnp.float32)


def _sum_over_parts(
    function: Callable[..., tuple[Any, jax.Array]], params: Any, parts: Batch, key: jax.Array
) -> tuple[Any, jax.Array]:
    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(function, params, first, key)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    count = jax.tree.leaves(parts)[0].shape[0]

    def add(total: Any, index_and_part: Any) -> tuple[Any, None]:
        index, part = index_and_part
        found = function(params, part, jax.random.fold_in(key, index + 1))
        return jax.tree.map(jnp.add, total, found), None

    return jax.lax.scan(add, zeros, (jnp.arange(count), parts))[0]


def _clipped(tree: Any, clip_norm: float) -> Any:
    if clip_norm == 0:
        return tree
    return clip_by_global_norm(clip_norm).update(tree, optax.EmptyState())[0]


def _is_state(node: Any) -> bool:
    return isinstance(node, SophiaState)
