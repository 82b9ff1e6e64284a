"""An experiment's programs, compiled ahead of time for its shapes."""

import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from experiments.config import Experiment
from experiments.data.cache import default_cache_dir
from experiments.data.objectives import batch_spec
from experiments.evaluate import EvalStep
from experiments.optim import make_optimizer
from experiments.step import Batch, State, Sums, init_state, make_eval_step, make_train_step
from models.api import Model, build
from models.mesh import batch_sharding, check_batch_size, make_mesh, on_mesh
from models.sharding import shard_like, shard_params

# (state, batch, progress before the step, progress after it) → (state, sums)
TrainStep = Callable[[State, Batch, np.float32, np.float32], tuple[State, Sums]]


@dataclasses.dataclass(frozen=True)
class Program:
    """What an experiment computes: its compiled training step, and what it takes to start it."""

    model: Model
    optimizer: optax.GradientTransformationExtraArgs
    train_step: TrainStep
    eval_step: EvalStep
    # (seed) → the state before the first step.
    init_state: Callable[[int], State]
    # ShapeDtypeStructs, with shardings, of the state that a step takes and gives back.
    state_shapes: Any
    # Wall seconds from Python to the compiled training step.
    compile_s: float


def compile_program(experiment: Experiment) -> Program:
    """Builds model, optimiser and steps of an experiment and compiles the training step."""
    begun = time.perf_counter()
    model = build(experiment.model)
    optimizer = make_optimizer(experiment.optimizer, experiment.pruning, experiment.seed)
    mesh = make_mesh(experiment.mesh)
    check_batch_size(mesh, experiment.train.batch_size // experiment.train.microbatches)
    init = partial(init_state, model, optimizer)
    state_shapes = jax.eval_shape(init, 0)
    params = shard_params(state_shapes["params"], mesh)
    state_shapes = shard_like(params, state_shapes, mesh)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state_shapes)
    batch_shapes = {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(mesh))
        for name, (shape, dtype) in batch_spec(experiment.data, experiment.train.batch_size).items()
    }
    scalar = jax.ShapeDtypeStruct((), np.float32)
    train_step = make_train_step(
        model, optimizer, experiment.pruning, experiment.train.microbatches
    )
    compiled = (
        jax.jit(on_mesh(train_step, mesh), out_shardings=(shardings, None), donate_argnums=0)
        .lower(state_shapes, batch_shapes, scalar, scalar)
        .compile()
    )
    eval_step = on_mesh(make_eval_step(model, experiment.pruning), mesh)
    return Program(
        model=model,
        optimizer=optimizer,
        train_step=compiled,
        eval_step=jax.jit(eval_step, in_shardings=(shardings, batch_sharding(mesh))),
        init_state=jax.jit(init, out_shardings=shardings),
        state_shapes=state_shapes,
        compile_s=time.perf_counter() - begun,
    )


def enable_compilation_cache() -> None:
    """Keeps compiled programs on disk, so that a second start compiles nothing."""
    jax.config.update("jax_compilation_cache_dir", str(default_cache_dir() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
