"""The two compiled programs of a run: one update, and the sums of one evaluation batch."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.methods.api import Draw, StepLosses, plain_losses
from experiments.optimizers.schedule_free import evaluation_params
from models.api import Model
from sparsity.config import PruningConfig
from sparsity.prune import apply_masks, forward_params
from sparsity.report import current_sparsity

Batch = Mapping[str, Any]
# Parameters, optimiser state (masks included), number of updates made, the run's key, and what an
# efficient-training method keeps ("method").
State = dict[str, Any]
# Every mean is kept as (sum, count) until it is printed.
Sums = dict[str, tuple[jax.Array, jax.Array]]


def init_state(
    model: Model,
    tx: optax.GradientTransformation,
    seed: int,
    method_state: Callable[[], Any] = lambda: None,
) -> State:
    """The state before the first step."""
    key = jax.random.key(seed)
    params = model.init(jax.random.fold_in(key, 0))
    opt = tx.init(params)
    state = {
        "params": apply_masks(params, opt),
        "opt": opt,
        "step": jnp.zeros((), jnp.int32),
        "key": key,
    }
    kept = method_state()
    return state if kept is None else state | {"method": kept}


def make_train_step(
    model: Model,
    tx: optax.GradientTransformationExtraArgs,
    pruning: PruningConfig | None = None,
    microbatches: int = 1,
    losses: StepLosses | None = None,
) -> Callable[[State, Batch, jax.Array, jax.Array], tuple[State, Sums]]:
    """One update: gradients of the summed loss over its count, accumulated over microbatches.

    `progress` and `next_progress` are the shares of the budget spent before and after the step.
    `losses` replaces the model's own.
    """
    losses = losses or plain_losses(model)

    def summed_loss(params: Any, batch: Batch, draw: Draw) -> tuple[jax.Array, Sums]:
        sums = losses(params, batch, draw)
        return sums["loss"][0], sums

    gradients = jax.grad(summed_loss, has_aux=True)

    def train_step(
        state: State, batch: Batch, progress: jax.Array, next_progress: jax.Array
    ) -> tuple[State, Sums]:
        key = jax.random.fold_in(state["key"], state["step"] + 1)
        draw = Draw(key, key, progress)
        used = _forward(pruning, state)
        if microbatches == 1:
            grads, sums = gradients(used, batch, draw)
        else:
            grads, sums = _accumulate(gradients, used, batch, draw, microbatches)
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
        new_state = state | {
            "params": optax.apply_updates(state["params"], updates),
            "opt": opt,
            "step": state["step"] + 1,
        }
        return new_state, sums

    return train_step


def cut_batch(batch: Batch, parts: int) -> Batch:
    """Cuts every array (B, …) into (parts, B / parts, …).

    Part i is every parts-th example from i on, so that each device has its share of every part.
    """
    return jax.tree.map(lambda x: x.reshape(-1, parts, *x.shape[1:]).swapaxes(0, 1), batch)


def _accumulate(gradients: Any, params: Any, batch: Batch, draw: Draw, parts: int) -> Any:
    """Sums gradients and metrics over equal parts of the batch, one part in memory at a time."""
    cut = cut_batch(batch, parts)

    def add_part(total: Any, index_and_part: Any) -> tuple[Any, None]:
        index, part = index_and_part
        part_draw = draw._replace(key=jax.random.fold_in(draw.key, index))
        found = gradients(params, part, part_draw)
        return jax.tree.map(jnp.add, total, found), None

    shapes = jax.eval_shape(gradients, params, jax.tree.map(lambda x: x[0], cut), draw)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.scan(add_part, zeros, (jnp.arange(parts), cut))[0]


def make_eval_step(
    model: Model, pruning: PruningConfig | None = None
) -> Callable[[State, Batch], Sums]:
    """Sums of the losses of one batch: all layers, no dropout, pruned weights at 0.

    Optimisers that train at one point and answer at another (schedule-free) are asked for the
    latter.
    """

    def eval_step(state: State, batch: Batch) -> Sums:
        return model.losses(evaluated_params(pruning, state), batch)

    return eval_step


def evaluated_params(pruning: PruningConfig | None, state: State) -> Any:
    """The parameters that answer: the optimiser's point for it, pruned weights at 0."""
    params = evaluation_params(state["params"], state["opt"])
    return _forward(pruning, state | {"params": params})


def _forward(pruning: PruningConfig | None, state: State) -> Any:
    """The parameters as the network sees them."""
    if pruning is None:
        return state["params"]
    return forward_params(pruning, state["params"], state["opt"])
