"""Scales of updates: by the norm of all, by the root mean square of each tensor."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparsity.plan import is_stacked, named_leaves


def is_matrix(params: Any) -> Any:
    """True for every leaf with two or more dimensions, the layer axis of a stack not counted."""
    paths = dict(named_leaves(params))
    matrices = [leaf.ndim - is_stacked(path) >= 2 for path, leaf in paths.items()]
    return jax.tree.unflatten(jax.tree.structure(params), matrices)


def rms_by_tensor(tree: Any) -> Any:
    """Root mean square of each tensor, of each layer's tensor where layers are stacked."""

    def rms(path: str, leaf: jax.Array) -> jax.Array:
        axes = tuple(range(is_stacked(path), leaf.ndim))
        mean = jnp.mean(jnp.square(leaf.astype(jnp.float32)), axis=axes, keepdims=True)
        return jnp.sqrt(mean).astype(leaf.dtype)

    leaves = [rms(path, leaf) for path, leaf in named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scales all updates down to a global norm of `limit`.

    One factor for all, which fuses with what comes after it; optax's own chooses element by element
    and takes a pass over the gradients more.
    """

    def clip(updates: Any, params: Any = None) -> Any:
        scale = jnp.minimum(1.0, limit / jnp.maximum(optax.global_norm(updates), 1e-30))
        return jax.tree.map(lambda u: u * scale.astype(u.dtype), updates)

    return optax.stateless(clip)


def clip_by_rms(limit: float = 1.0) -> optax.GradientTransformation:
    """Scales each tensor's update down to a root mean square of `limit` (AdaFactor, section 6)."""

    def clip(updates: Any, params: Any = None) -> Any:
        rms = rms_by_tensor(updates)
        return jax.tree.map(lambda u, size: u / jnp.maximum(1, size / limit), updates, rms)

    return optax.stateless(clip)


def scale_by_rms(least: float = 1e-3) -> optax.GradientTransformation:
    """Multiplies each tensor's update by max(least, RMS(parameter)) (AdaFactor, section 8)."""

    def scale(updates: Any, params: Any) -> Any:
        rms = rms_by_tensor(params)
        return jax.tree.map(lambda u, size: u * jnp.maximum(size, least), updates, rms)

    return optax.stateless(scale)
