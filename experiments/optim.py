"""Optimisers by configuration; every learning rate is a function of progress in [0, 1]."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.config import OptimizerConfig
from sparsity.adafactor import scale_by_sparse_adafactor
from sparsity.config import PruningConfig
from sparsity.plan import is_stacked, named_leaves
from sparsity.prune import prune

# AdaFactor's increasing decay of the second moment, 1 − t^−0.8 (Shazeer & Stern 2018, section 7.2).
_ADAFACTOR_DECAY_RATE = 0.8


def learning_rate(cfg: OptimizerConfig, progress: jax.Array) -> jax.Array:
    """Learning rate when `progress` of the budget is spent: linear warm-up, then the schedule.

    "rsqrt" is peak · √(warm-up / progress), T5's schedule (Raffel et al. 2020, section 3.1.2).
    """
    warmup = cfg.warmup_fraction
    low = cfg.initial_learning_rate_ratio
    rising = low + (1 - low) * progress / warmup if warmup > 0 else jnp.ones_like(progress)
    after = (progress - warmup) / (1 - warmup) if warmup < 1 else jnp.zeros_like(progress)
    floor = cfg.final_learning_rate_ratio
    falling = {
        "constant": lambda: jnp.ones_like(progress),
        "linear": lambda: 1 - (1 - floor) * after,
        "cosine": lambda: floor + (1 - floor) * 0.5 * (1 + jnp.cos(jnp.pi * after)),
        "rsqrt": lambda: jnp.sqrt(warmup / jnp.maximum(progress, warmup)),
    }[cfg.schedule]()
    return cfg.peak_learning_rate * jnp.where(progress < warmup, rising, falling)


def make_optimizer(
    cfg: OptimizerConfig, pruning: PruningConfig | None, seed: int = 0
) -> optax.GradientTransformationExtraArgs:
    """The optimiser of an experiment; `update` also takes progress, next_progress and key.

    `seed` draws the first masks of pruning rules that start sparse.
    """
    parts = [_clip_by_global_norm(cfg.clip_norm)] if cfg.clip_norm > 0 else []
    if cfg.name == "adamw":
        parts.append(optax.scale_by_adam(cfg.beta1, cfg.beta2, cfg.epsilon))
        if cfg.scale_by_rms:
            parts.append(_scale_by_rms())
    elif cfg.factored:
        parts += [
            optax.scale_by_factored_rms(decay_rate=_ADAFACTOR_DECAY_RATE),
            _clip_by_rms(),
            _scale_by_rms(),
        ]
    else:
        parts.append(scale_by_sparse_adafactor(_ADAFACTOR_DECAY_RATE))
    if cfg.weight_decay > 0:
        parts.append(optax.add_decayed_weights(cfg.weight_decay, mask=_is_matrix))
    parts.append(_scale_by_progress(cfg))
    inner = optax.with_extra_args_support(optax.chain(*parts))
    return prune(inner, pruning, jax.random.key(seed)) if pruning else inner


def _is_matrix(params: Any) -> Any:
    """True for every leaf with two or more dimensions, the layer axis of a stack not counted."""
    paths = dict(named_leaves(params))
    matrices = [leaf.ndim - is_stacked(path) >= 2 for path, leaf in paths.items()]
    return jax.tree.unflatten(jax.tree.structure(params), matrices)


def _rms_by_tensor(tree: Any) -> Any:
    """Root mean square of each tensor, of each layer's tensor where layers are stacked."""

    def rms(path: str, leaf: jax.Array) -> jax.Array:
        axes = tuple(range(is_stacked(path), leaf.ndim))
        mean = jnp.mean(jnp.square(leaf.astype(jnp.float32)), axis=axes, keepdims=True)
        return jnp.sqrt(mean).astype(leaf.dtype)

    leaves = [rms(path, leaf) for path, leaf in named_leaves(tree)]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scales all updates down to a global norm of `limit`.

    One factor for all, which fuses with what comes after it; optax's own chooses element by element
    and takes a pass over the gradients more.
    """

    def clip(updates: Any, params: Any = None) -> Any:
        scale = jnp.minimum(1.0, limit / jnp.maximum(optax.global_norm(updates), 1e-30))
        return jax.tree.map(lambda u: u * scale.astype(u.dtype), updates)

    return optax.stateless(clip)


def _clip_by_rms(limit: float = 1.0) -> optax.GradientTransformation:
    """Scales each tensor's update down to a root mean square of `limit` (AdaFactor, section 6)."""

    def clip(updates: Any, params: Any = None) -> Any:
        rms = _rms_by_tensor(updates)
        return jax.tree.map(lambda u, size: u / jnp.maximum(1, size / limit), updates, rms)

    return optax.stateless(clip)


def _scale_by_rms(least: float = 1e-3) -> optax.GradientTransformation:
    """Multiplies each tensor's update by max(least, RMS(parameter)) (AdaFactor, section 8)."""

    def scale(updates: Any, params: Any) -> Any:
        rms = _rms_by_tensor(params)
        return jax.tree.map(lambda u, size: u * jnp.maximum(size, least), updates, rms)

    return optax.stateless(scale)


def _scale_by_progress(cfg: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    def update(updates: Any, state: Any, params: Any = None, *, progress: jax.Array, **_: Any):
        rate = -learning_rate(cfg, progress)
        return jax.tree.map(lambda u: rate.astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
