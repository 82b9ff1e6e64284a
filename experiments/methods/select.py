"""Scores candidates and chooses what is trained on, all on the device."""

from typing import Any

import jax
import jax.numpy as jnp

from experiments.methods.api import Batch, State
from experiments.step import cut_batch
from models.api import Model


def example_losses(model: Model, state: State, batch: Batch, parts: int) -> jax.Array:
    """Returns the mean loss (N,) of each example, computed forward only, one part at a time.

    Logits are computed where something is predicted and nowhere else; no dropout.
    """

    def score(part: Batch) -> jax.Array:
        total, count = model.losses(state["params"], part, per_example=True)["nll"]
        return total / jnp.maximum(count, 1)

    if parts == 1:
        return score(batch)
    # Part i holds every parts-th example from i on.
    return jax.lax.map(score, cut_batch(dict(batch), parts)).T.reshape(-1)


def init_selection(batch: Batch, history: int, pool: int) -> Any:
    """Returns an empty history of losses and an empty pool of examples, oldest first."""
    return {
        "losses": jnp.zeros(history, jnp.float32),
        # Losses seen so far; the next one goes to this place modulo the size of the history.
        "seen": jnp.int32(0),
        "pool": {
            name: jnp.zeros((pool, *leaf.shape[1:]), leaf.dtype) for name, leaf in batch.items()
        },
        "pooled": jnp.int32(0),
    }


def select_by_percentile(
    kept: Any, batch: Batch, losses: jax.Array, count: int, beta: float, key: jax.Array
) -> tuple[Any, Batch]:
    """Accepts candidates (N) with probability percentile^β and returns `count` examples.

    The losses join the history before percentiles are taken, as in released code. The batch takes
    pooled examples first, oldest first, then accepted candidates in their order, then the others,
    likeliest first. Accepted candidates that are left over are pooled.
    """
    size, pool_size = len(losses), len(kept["pool"][next(iter(batch))])
    history = kept["losses"].at[(kept["seen"] + jnp.arange(size)) % len(kept["losses"])].set(losses)
    seen = kept["seen"] + size
    probability = percentiles(history, jnp.minimum(seen, len(history)), losses) ** beta
    accepted = jax.random.uniform(key, (size,)) < probability

    # In this order: pooled, accepted, the others by their probability, empty places of the pool.
    place = jnp.arange(pool_size)
    group = jnp.concatenate([jnp.where(place < kept["pooled"], 0, 3), jnp.where(accepted, 1, 2)])
    within = jnp.where(accepted, 0.0, -probability)
    order = jnp.lexsort((jnp.concatenate([jnp.zeros(pool_size), within]), group))
    everything = {name: jnp.concatenate([kept["pool"][name], batch[name]]) for name in batch}
    chosen = {name: leaf[order[:count]] for name, leaf in everything.items()}
    left = kept["pooled"] + jnp.sum(accepted) - count
    # Where more is left than the pool can hold, the oldest go.
    skipped = jnp.maximum(left - pool_size, 0)
    rest = jax.lax.dynamic_slice_in_dim(
        jnp.pad(order[count:], (0, pool_size), mode="edge"), skipped, pool_size
    )
    return {
        "losses": history,
        "seen": seen,
        "pool": {name: leaf[rest] for name, leaf in everything.items()},
        "pooled": jnp.clip(left, 0, pool_size),
    }, chosen


def percentiles(history: jax.Array, valid: jax.Array, losses: jax.Array) -> jax.Array:
    """Returns the share of the first `valid` entries of the history that are at most each loss."""
    sorted_history = jnp.sort(jnp.where(jnp.arange(len(history)) < valid, history, jnp.inf))
    return jnp.searchsorted(sorted_history, losses, side="right") / valid


def select_highest(batch: Batch, scores: jax.Array, count: int) -> Batch:
    """Returns the `count` examples with the highest scores."""
    best = jax.lax.top_k(scores, count)[1]
    return {name: leaf[best] for name, leaf in batch.items()}
