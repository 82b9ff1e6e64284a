"""The fixed workloads by which two devices are compared, and the baselines' own programs."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.config import Experiment
from experiments.data.batches import Batches
from experiments.data.prepare import prepare
from experiments.program import Program, compile_program
from experiments.reference.base import Cost, ProgramId
from experiments.reference.convert import CHAIN, FUNCTION, PASS, PRODUCT
from experiments.reference.cost import cost_of
from experiments.reference.identify import identify
from experiments.registry import resolve

# Side of the square matrices that are multiplied, by type; bfloat16 has few sizes, since a device
# without units for it converts to float32 and back.
_PRODUCTS = {"float32": (256, 512, 1024, 2048), "bfloat16": (512, 2048)}
# Numbers in the arrays that are read and written: 4 MiB stay in a cache, 128 MiB do not.
_PASSES = (2**20, 2**25)
# Kernels one after the other, each too small for anything but its own start to count.
_CHAINS = (64, 256)
_CHAIN_SIDE = 8
# Numbers of which functions are taken, and how many in one kernel: the arrays stay in a cache.
_FUNCTIONS = (2**14, 2**18)
_FUNCTIONS_EACH = 16

# The experiments whose programs at demo shapes a calibration measures.
# With Sophia a baseline has a Hessian program too.
_WITH_SOPHIA = {"bert_baseline": "bert_sophia_g", "t5_baseline": "t5_sophia_g"}
BASELINES = ("bert_baseline", "crammed_bert", "t5_baseline", "vit_baseline")
_DRAWN_BATCHES = 4


@dataclasses.dataclass(frozen=True)
class Job:
    """Something to time: `run(state, index)` makes one call and returns the next state."""

    name: str
    # Under which its runs appear in a trace.
    module: str
    run: Callable[[Any, int], Any]
    state: Any
    cost: Cost
    # Of a fixed workload: what bounds it, and the type of its arrays.
    kind: str = ""
    dtype: str = ""
    # Of a baseline's program.
    program: ProgramId | None = None


def fixed_workloads() -> Iterator[Job]:
    """Products, passes over memory, chains of small kernels and functions, at several sizes."""
    for dtype, sides in _PRODUCTS.items():
        for side in sides:
            # A rotation keeps every product at the size of its factors.
            matrix = np.linalg.qr(np.random.default_rng(0).normal(size=(side, side)))[0]
            arrays = jnp.asarray(matrix, dtype), jnp.eye(side, dtype=dtype)
            yield _job(f"product_{dtype}_{side}", PRODUCT, dtype, _product, *arrays)
    for size in _PASSES:
        array = jnp.ones(size, jnp.float32)
        yield _job(f"pass_float32_{size}", PASS, "float32", _pass, 2 * array, array)
    for length in _CHAINS:
        chain, square = partial(_chain, length=length), (_CHAIN_SIDE, _CHAIN_SIDE)
        arrays = jnp.eye(_CHAIN_SIDE), jnp.ones(square)
        yield _job(f"chain_float32_{length}", CHAIN, "float32", chain, *arrays)
    for size in _FUNCTIONS:
        array = jnp.ones(size, jnp.float32)
        yield _job(f"function_float32_{size}", FUNCTION, "float32", _function, array, 0.5 * array)


def _product(fixed: jax.Array, state: jax.Array) -> jax.Array:
    return fixed @ state


def _pass(fixed: jax.Array, state: jax.Array) -> jax.Array:
    return 0.5 * (fixed + state)


def _chain(fixed: jax.Array, state: jax.Array, length: int) -> jax.Array:
    # A product between two functions keeps them from becoming one kernel.
    for _ in range(length // 2):
        state = jnp.tanh(state @ fixed)
    return state


def _function(fixed: jax.Array, state: jax.Array) -> jax.Array:
    # In turn, they keep every number between 0 and 1.
    for _ in range(_FUNCTIONS_EACH // 2):
        state = jnp.tanh(jnp.exp(-fixed * state))
    return state


def _job(
    name: str, kind: str, dtype: str, function: Any, fixed: jax.Array, state: jax.Array
) -> Job:
    def workload(fixed: jax.Array, state: jax.Array) -> jax.Array:
        return function(fixed, state)

    workload.__name__ = name
    compiled = jax.jit(workload, donate_argnums=1).lower(fixed, state).compile()
    return Job(
        name=name,
        module=f"jit_{name}",
        run=lambda state, index: compiled(fixed, state),
        state=state,
        cost=cost_of(compiled),
        kind=kind,
        dtype=dtype,
    )


def baseline_programs(name: str) -> Iterator[Job]:
    """The training step, the forward pass and the Hessian pass of a baseline at demo scale."""
    experiment = resolve(name, "demo")
    drawn = _draw(experiment)
    program = compile_program(experiment)
    train = partial(_train, program, drawn)
    yield Job(
        name=f"{name} train",
        module="jit_train_step",
        run=train,
        state=program.init_state(0),
        cost=cost_of(program.train_step),
        program=identify(experiment, "train"),
    )
    state = program.init_state(0)
    eval_step: Any = program.eval_step  # jitted, which its type does not say
    forward = eval_step.lower(state, drawn[0]).compile()
    yield Job(
        name=f"{name} forward",
        module="jit_eval_step",
        run=partial(_forward, forward, drawn),
        state=(state, None),
        cost=cost_of(forward),
        program=identify(experiment, "forward"),
    )
    if name in _WITH_SOPHIA:
        yield _hessian(name, resolve(_WITH_SOPHIA[name], "demo"))


def _draw(experiment: Experiment) -> list[Any]:
    batches = Batches(
        prepare(experiment.data), experiment.data, "train", experiment.train.batch_size
    )
    return [batches.batch(experiment.seed, index) for index in range(_DRAWN_BATCHES)]


def _hessian(name: str, experiment: Experiment) -> Job:
    drawn, program = _draw(experiment), compile_program(experiment)
    (side,) = program.sides

    def run(state: Any, index: int) -> Any:
        return side.run(state, drawn[index % len(drawn)], np.float32(0))[0]

    return Job(
        name=f"{name} {side.kind}",
        module=f"jit_{side.kind}_step",
        run=run,
        state=program.init_state(0),
        cost=cost_of(side.run),
        program=identify(experiment, side.kind),
    )


def _train(program: Program, drawn: list[Any], state: Any, index: int) -> Any:
    # Told that nothing of the budget is spent, so that no schedule makes a step dearer.
    batch = drawn[index % len(drawn)]
    return program.train_step(state, batch, np.float32(0), np.float32(0))[0]


def _forward(forward: Any, drawn: list[Any], state: Any, index: int) -> Any:
    params, sums = state
    # One at a time: nothing else orders passes that do not need each other.
    jax.block_until_ready(sums)
    return params, forward(params, drawn[index % len(drawn)])
