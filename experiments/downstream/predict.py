"""The compiled program that answers a task's held-out examples, beside their losses."""

from collections.abc import Callable
from typing import Any

import jax

from experiments.config import Experiment
from experiments.step import Batch, State, Sums, evaluated_params
from models.api import Model
from models.config import T5Config
from models.decode import make_generate
from models.layers import MakeMlp
from models.mesh import constrain


def make_task_eval_step(
    experiment: Experiment, model: Model, make_mlp: MakeMlp | None
) -> Callable[[State, Batch], tuple[Sums, jax.Array]]:
    """Sums of the losses of one batch, and what the network answers to each of its examples.

    Answers are outputs of the head (B, N), or tokens that T5 finds greedily (B, T); every process
    gets all of them.
    """
    answer: Callable[[Any, Batch], jax.Array] = model.apply
    if isinstance(experiment.model, T5Config):
        answer = make_generate(
            experiment.model, make_mlp, max_length=experiment.data.targets_length
        )

    def eval_step(state: State, batch: Batch) -> tuple[Sums, jax.Array]:
        params = evaluated_params(experiment.pruning, state)
        return model.losses(params, batch), constrain(answer(params, batch), "everywhere")

    return eval_step
