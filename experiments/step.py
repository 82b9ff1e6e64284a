"""The two compiled programs of a run: one update, and the sums of one evaluation batch."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from models.api import Model
from sparsity.config import PruningConfig
from sparsity.prune import apply_masks, forward_params
from sparsity.report import current_sparsity

Batch = dict[str, Any]
# Parameters, optimiser state (masks included), number of updates made, and the run's key.
State = dict[str, Any]
# Every mean is kept as (sum, count) until it is printed.
Sums = dict[str, tuple[jax.Array, jax.Array]]


def init_state(model: Model, tx: optax.GradientTransformation, seed: int) -> State:
    """The state before the first step."""
    key = jax.random.key(seed)
    params = model.init(jax.random.fold_in(key, 0))
    opt = tx.init(params)
    return {
        "params": apply_masks(params, opt),
        "opt": opt,
        "step": jnp.zeros((), jnp.int32),
        "key": key,
    }


def make_train_step(
    model: Model,
    tx: optax.GradientTransformationExtraArgs,
    pruning: PruningConfig | None = None,
    microbatches: int = 1,
) -> Callable[[State, Batch, jax.Array, jax.Array], tuple[State, Sums]]:
    """One update: gradients of the summed loss over its count, accumulated over microbatches.

    `progress` and `next_progress` are the shares of the budget spent before and after the step.
    """

    def summed_loss(params: Any, batch: Batch, key: jax.Array) -> tuple[jax.Array, Sums]:
        sums = model.losses(params, batch, key=key)
        return sums["loss"][0], sums

    gradients = jax.grad(summed_loss, has_aux=True)

    def train_step(
        state: State, batch: Batch, progress: jax.Array, next_progress: jax.Array
    ) -> tuple[State, Sums]:
        key = jax.random.fold_in(state["key"], state["step"] + 1)
        used = _forward(pruning, state)
        if microbatches == 1:
            grads, sums = gradients(used, batch, key)
        else:
            grads, sums = _accumulate(gradients, used, batch, key, microbatches)
        grads = jax.tree.map(lambda g: g / sums["loss"][1].astype(g.dtype), grads)
        updates, opt = tx.update(
            grads,
            state["opt"],
            state["params"],
            progress=progress,
            next_progress=next_progress,
            key=key,
        )
        sums["grad_norm"] = (optax.global_norm(grads), jnp.ones(()))
        if pruning:
            sums["sparsity"] = (current_sparsity(opt), jnp.ones(()))
        new_state = {
            "params": optax.apply_updates(state["params"], updates),
            "opt": opt,
            "step": state["step"] + 1,
            "key": state["key"],
        }
        return new_state, sums

    return train_step


def _accumulate(gradients: Any, params: Any, batch: Batch, key: jax.Array, parts: int) -> Any:
    """Sums gradients and metrics over equal parts of the batch, one part in memory at a time."""
    # Part i is every parts-th example from i on, so that each device has its share of every part.
    cut = jax.tree.map(lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)

    def add_part(total: Any, index_and_part: Any) -> tuple[Any, None]:
        index, part = index_and_part
        found = gradients(params, part, jax.random.fold_in(key, index))
        return jax.tree.map(jnp.add, total, found), None

    shapes = jax.eval_shape(gradients, params, jax.tree.map(lambda x: x[0], cut), key)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.scan(add_part, zeros, (jnp.arange(parts), cut))[0]


def make_eval_step(
    model: Model, pruning: PruningConfig | None = None
) -> Callable[[State, Batch], Sums]:
    """Sums of the losses of one batch, without dropout, with pruned weights at 0."""

    def eval_step(state: State, batch: Batch) -> Sums:
        return model.losses(_forward(pruning, state), batch)

    return eval_step


def _forward(pruning: PruningConfig | None, state: State) -> Any:
    """The parameters as the network sees them."""
    if pruning is None:
        return state["params"]
    return forward_params(pruning, state["params"], state["opt"])
