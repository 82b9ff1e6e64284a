"""An experiment's programs, compiled ahead of time for its shapes."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from experiments.config import Experiment
from experiments.data.cache import default_cache_dir
from experiments.data.objectives import batch_spec
from experiments.device import this_device
from experiments.downstream.predict import make_task_eval_step
from experiments.evaluate import EvalStep
from experiments.methods.api import Method
from experiments.network import build_network, feedforward_block
from experiments.optim import make_optimizer
from experiments.optimizers.sides import optimizer_sides
from experiments.step import Batch, State, Sums, init_state, make_eval_step, make_train_step
from models.api import Model
from models.mesh import batch_sharding, check_batch_size, make_mesh, on_mesh
from models.sharding import shard_like, shard_params

# What an experiment without a method does.
NO_METHOD = Method(name="none")

# (state, batch, progress before the step, progress after it) → (state, sums)
TrainStep = Callable[[State, Batch, np.float32, np.float32], tuple[State, Sums]]


# (state, batch, progress) → (state, batch)
SideStep = Callable[[State, Batch, np.float32], tuple[State, Batch]]


@dataclasses.dataclass(frozen=True)
class CompiledSide:
    """A program that is run before every `every_steps`-th training step."""

    kind: str
    every_steps: int
    calls_per_run: float
    free: bool
    run: SideStep


@dataclasses.dataclass(frozen=True)
class Program:
    """What an experiment computes: its compiled training step, and what it takes to start it."""

    experiment: Experiment
    model: Model
    optimizer: optax.GradientTransformationExtraArgs
    train_step: TrainStep
    # What runs beside the training step, in this order.
    sides: tuple[CompiledSide, ...]
    eval_step: EvalStep
    # (seed) → the state before the first step.
    init_state: Callable[[int], State]
    # ShapeDtypeStructs, with shardings, of the state that a step takes and gives back.
    state_shapes: Any
    # ShapeDtypeStructs of the batch that a step is given, and of the one that it trains on.
    batch_shapes: Any
    train_batch_shapes: Any
    # Wall seconds from Python to the compiled training step.
    compile_s: float

    def step(
        self,
        state: State,
        batch: Batch,
        step: int,
        progress: np.float32,
        next_progress: np.float32,
    ) -> tuple[State, Sums]:
        """Makes update number `step`, counted from 0, and what is due beside it."""
        for side in self.sides:
            if step % side.every_steps == 0:
                state, batch = side.run(state, batch, progress)
        return self.train_step(state, batch, progress, next_progress)


def compile_program(experiment: Experiment, devices: Sequence[jax.Device] | None = None) -> Program:
    """Builds model, optimiser and steps of an experiment and compiles the training step.

    `devices` may be described only, as those of a TPU topology are when a run is planned ahead.
    """
    begun = time.perf_counter()
    method = experiment.method or NO_METHOD
    model = build_network(experiment)
    optimizer = make_optimizer(experiment.optimizer, experiment.pruning, experiment.seed)
    mesh = make_mesh(experiment.mesh, devices)
    given = examples_per_step(experiment)
    for examples in (experiment.train.batch_size, given):
        check_batch_size(mesh, examples // experiment.train.microbatches)
    batch_shapes = _batch_shapes(experiment, given, method.extra_arrays, mesh)
    method_state = partial(method.init_state, experiment, batch_shapes)
    init = partial(init_state, model, optimizer, method_state=method_state)
    state_shapes = jax.eval_shape(init, 0)
    params = shard_params(state_shapes["params"], mesh)
    state_shapes = shard_like(params, state_shapes, mesh)
    shardings = jax.tree.map(lambda leaf: leaf.sharding, state_shapes)
    scalar = jax.ShapeDtypeStruct((), np.float32)

    sides, shapes = [], batch_shapes
    for side in (*method.sides(model, experiment), *optimizer_sides(model, experiment)):
        function = on_mesh(side.function, mesh)
        _, after = jax.eval_shape(function, state_shapes, shapes, scalar)
        compiled = (
            jax.jit(
                named(function, f"{side.kind}_step"),
                out_shardings=(shardings, batch_sharding(mesh)),
                donate_argnums=0,
            )
            .lower(state_shapes, shapes, scalar)
            .compile()
        )
        sides.append(
            CompiledSide(side.kind, side.every_steps, side.calls_per_run, side.free, compiled)
        )
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=batch_sharding(mesh)
            ),
            after,
        )
    train_step = make_train_step(
        model,
        optimizer,
        experiment.pruning,
        experiment.train.microbatches,
        method.losses(model, experiment),
    )
    compiled_step = (
        jax.jit(on_mesh(train_step, mesh), out_shardings=(shardings, None), donate_argnums=0)
        .lower(state_shapes, shapes, scalar, scalar)
        .compile()
    )
    if experiment.data.task is None:
        eval_function: EvalStep = make_eval_step(model, experiment.pruning)
    else:
        eval_function = make_task_eval_step(experiment, model, feedforward_block(experiment))
    eval_step = on_mesh(eval_function, mesh)
    return Program(
        experiment=experiment,
        model=model,
        optimizer=optimizer,
        train_step=compiled_step,
        sides=tuple(sides),
        eval_step=jax.jit(eval_step, in_shardings=(shardings, batch_sharding(mesh))),
        init_state=jax.jit(init, out_shardings=shardings),
        state_shapes=state_shapes,
        batch_shapes=batch_shapes,
        train_batch_shapes=shapes,
        compile_s=time.perf_counter() - begun,
    )


def examples_per_step(experiment: Experiment) -> int:
    """How many examples a step reads: more than the batch where a method selects."""
    return (experiment.method or NO_METHOD).examples_per_step(experiment)


def _batch_shapes(
    experiment: Experiment, examples: int, extra: Sequence[str], mesh: jax.sharding.Mesh
) -> dict[str, jax.ShapeDtypeStruct]:
    spec = dict(batch_spec(experiment.data, examples))
    spec |= {name: ((examples,), np.dtype(np.float32)) for name in extra}
    return {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=batch_sharding(mesh))
        for name, (shape, dtype) in spec.items()
    }


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Returns the function under the name by which a trace shows its program."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    call.__name__ = name
    return call


def enable_compilation_cache() -> None:
    """Keeps compiled programs on disk, so that a second start compiles nothing.

    Devices have folders of their own: XLA compiles for as many cores as a process may use but does
    not tell them apart, and a program for one core took 17 % longer on two than one made for two.
    """
    folder = default_cache_dir() / "compiled" / this_device().key
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
