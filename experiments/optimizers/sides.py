"""What an optimiser computes beside the training step: Sophia's estimates of the curvature."""

from typing import Any

import jax

from experiments.config import Experiment, SophiaConfig
from experiments.methods.api import Batch, Side, State
from experiments.optimizers.sophia import update_curvature
from experiments.step import cut_batch
from models.api import Model

# Draws apart from those of the training steps, which fold in numbers from 1 on.
_STREAM = 2**31 - 1


def optimizer_sides(model: Model, experiment: Experiment) -> tuple[Side, ...]:
    """Returns the Hessian pass of Sophia, nothing for other optimisers.

    It reads the first `hessian_examples` of the batch that is then trained on: unlike in released
    code, where it takes further training data, a pass costs time and nothing else.
    """
    cfg = experiment.optimizer
    if cfg.name not in ("sophia_g", "sophia_h"):
        return ()
    settings = cfg.sophia or SophiaConfig()
    examples = settings.hessian_examples or experiment.train.batch_size
    part = experiment.train.batch_size // experiment.train.microbatches

    def hessian(state: State, batch: Batch, progress: Any) -> tuple[State, Batch]:
        chosen = jax.tree.map(lambda x: x[:examples], dict(batch))
        key = jax.random.fold_in(jax.random.fold_in(state["key"], _STREAM), state["step"])
        opt = update_curvature(
            cfg,
            model,
            state["params"],
            state["opt"],
            cut_batch(chosen, max(examples // part, 1)),
            key,
        )
        return state | {"opt": opt}, batch

    return (Side("hessian", hessian, settings.hessian_every_steps),)
