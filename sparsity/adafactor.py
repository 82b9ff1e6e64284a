"""AdaFactor as used for sparse training: every average is over the weights that are kept."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sparsity.plan import is_stacked, named_leaves
from sparsity.prune import map_masked


class SparseAdafactorState(NamedTuple):
    """Steps taken (int32) and the running mean of squared gradients, one for every weight."""

    step: jax.Array
    second_moment: Any


def scale_by_sparse_adafactor(
    decay_exponent: float = 0.8,
    max_decay: float = 1.0,
    clip_rms: float = 1.0,
    min_parameter_rms: float = 1e-3,
    epsilon: float = 1e-30,
) -> optax.GradientTransformationExtraArgs:
    """Returns AdaFactor without learning rate and sign, with an unfactored second moment.

    With g the gradient and v ← β v + (1 − β)(g² + ε), β = min(1 − t^−decay_exponent, max_decay):
    u = g / √v, divided by max(1, RMS(u) / clip_rms), times max(RMS(w), min_parameter_rms). Both
    RMS are over kept weights only, so that pruning changes neither the clipping nor the step's
    size; each layer of a stacked tensor has its own. `masks` (path → True where kept) is an extra
    argument of update, as `prune` hands it on; without it all weights count.

    Shazeer & Stern 2018 (arXiv 1804.04235), algorithms 4 to 6, unfactored; restriction to non-zero
    weights after the released code of Frantar et al. 2024 (arXiv 2309.08520).
    """

    def init(params: Any) -> SparseAdafactorState:
        return SparseAdafactorState(jnp.int32(0), optax.tree.zeros_like(params))

    def update(
        grads: Any,
        state: SparseAdafactorState,
        params: Any,
        *,
        masks: dict[str, jax.Array] | None = None,
        **extra: Any,
    ) -> tuple[Any, SparseAdafactorState]:
        del extra
        masks = masks or {}
        step = state.step + 1
        decay = jnp.minimum(1.0 - step.astype(jnp.float32) ** -decay_exponent, max_decay)
        moment = jax.tree.map(
            lambda v, g: decay * v + (1 - decay) * (g * g + epsilon), state.second_moment, grads
        )
        moment = map_masked(lambda v, kept: jnp.where(kept, v, 0), moment, masks)

        def scaled(path: str, g: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
            kept, stacked = masks.get(path), is_stacked(path)
            u = jnp.where(v > 0, g * jax.lax.rsqrt(v), 0)
            u /= jnp.maximum(1.0, _rms(u, kept, stacked) / clip_rms)
            return u * jnp.maximum(_rms(w, kept, stacked), min_parameter_rms)

        leaves, structure = jax.tree.flatten(grads)
        paths = [path for path, _ in named_leaves(grads)]
        columns = zip(paths, leaves, jax.tree.leaves(moment), jax.tree.leaves(params), strict=True)
        updates = jax.tree.unflatten(structure, [scaled(*column) for column in columns])
        return updates, SparseAdafactorState(step, moment)

    return optax.GradientTransformationExtraArgs(init, update)


def _rms(x: jax.Array, kept: jax.Array | None, stacked: bool) -> jax.Array:
    """Returns the root mean square over the kept weights, per layer where layers are stacked."""
    axes = tuple(range(int(stacked), x.ndim))
    if kept is None:
        return jnp.sqrt(jnp.mean(x * x, axis=axes, keepdims=True))
    count = jnp.sum(kept, axis=axes, keepdims=True, dtype=jnp.float32)
    total = jnp.sum(jnp.where(kept, x * x, 0), axis=axes, keepdims=True)
    return jnp.sqrt(total / jnp.maximum(count, 1))
