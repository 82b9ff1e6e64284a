"""An experiment's real training step, compiled for devices that need not be there."""

import dataclasses
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from experiments.config import Experiment
from experiments.optim import make_optimizer
from experiments.program import compile_program
from experiments.step import init_state
from launch.cost import Kernel, kernels
from launch.hlo import parse
from models.api import build
from models.mesh import make_mesh
from models.sharding import shard_like, shard_params


@dataclasses.dataclass(frozen=True)
class CompiledStep:
    """What the compiler says of a step and what runs beside it, on one of `devices` devices."""

    devices: int
    # Bytes of a device's memory, by what is in it.
    memory: dict[str, int]
    kernels: list[Kernel]
    compile_s: float


@dataclasses.dataclass(frozen=True)
class TooLarge:
    """The compiler could not lay the step out in a device's memory."""

    used: float
    capacity: float
    compile_s: float


def compile_step(
    experiment: Experiment, devices: Sequence[jax.Device], capacity: float
) -> CompiledStep | TooLarge:
    """Compiles the training step; `capacity` is the memory of one device in bytes."""
    begun = time.perf_counter()
    try:
        program = compile_program(experiment, devices)
    except jax.errors.JaxRuntimeError as error:
        sizes = _out_of_memory(str(error))
        if sizes is None:
            raise
        return TooLarge(*sizes, compile_s=time.perf_counter() - begun)
    compiled: Any = program.train_step
    memory = _memory(program.state_shapes, compiled.memory_analysis())
    seconds = time.perf_counter() - begun
    if sum(memory.values()) > capacity:
        return TooLarge(sum(memory.values()), capacity, seconds)
    mesh = jax.tree.leaves(program.state_shapes)[0].sharding.mesh
    found = kernels(parse(compiled.as_text()))
    for side in program.sides:
        beside: Any = side.run
        for kernel in kernels(parse(beside.as_text())):
            found.append(dataclasses.replace(kernel, times=kernel.times / side.every_steps))
    return CompiledStep(mesh.size, memory, found, seconds)


def abstract_state(experiment: Experiment, devices: Sequence[jax.Device]) -> Any:
    """The state of a run as sharded abstract arrays, without what a method keeps beside it."""
    model = build(experiment.model)
    optimizer = make_optimizer(experiment.optimizer, experiment.pruning, experiment.seed)
    mesh = make_mesh(experiment.mesh, devices)
    state = jax.eval_shape(partial(init_state, model, optimizer), 0)
    return shard_like(shard_params(state["params"], mesh), state, mesh)


def shard_bytes(tree: Any) -> int:
    """Bytes of one device's part of a tree of abstract arrays."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        shape = leaf.sharding.shard_shape(leaf.shape) if leaf.sharding else leaf.shape
        part = jax.eval_shape(lambda leaf=leaf, shape=shape: jax.lax.empty(shape, leaf.dtype))
        total += part.size * part.dtype.itemsize
    return total


def _memory(state: Any, analysis: Any) -> dict[str, int]:
    """Bytes by kind; layouts pad arrays, and what that takes is a kind of its own."""
    parameters = shard_bytes(state["params"])
    rest = shard_bytes({name: part for name, part in state.items() if name != "params"})
    arguments = analysis.argument_size_in_bytes
    return {
        "parameters": parameters,
        "optimiser state": rest,
        "batch and padding": max(arguments - parameters - rest, 0),
        # The state is updated in place; what is left are a few sums.
        "results": max(analysis.output_size_in_bytes - analysis.alias_size_in_bytes, 0),
        "activations and other temporaries": analysis.temp_size_in_bytes,
        "program": analysis.generated_code_size_in_bytes,
    }


def _out_of_memory(message: str) -> tuple[float, float] | None:
    """(used, capacity) in bytes, from the compiler's refusal; None for another error."""
    units = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
    size = r"\(?([\d.]+)([KMGT]?)\)?"
    for pattern in (
        rf"Used {size} of {size} hbm",
        rf"temporaries {size} exceeds available HBM {size}",
    ):
        if found := re.search(pattern, message):
            return float(found[1]) * units[found[2]], float(found[3]) * units[found[4]]
    return None
