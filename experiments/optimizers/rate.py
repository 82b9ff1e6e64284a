"""The learning rate, a function of progress in [0, 1]."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.config import OptimizerConfig


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


def scale_by_progress(cfg: OptimizerConfig) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by minus the learning rate at `progress`."""

    def update(updates: Any, state: Any, params: Any = None, *, progress: jax.Array, **_: Any):
        rate = -learning_rate(cfg, progress)
        return jax.tree.map(lambda u: rate.astype(u.dtype) * u, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
