"""A checkpoint of one mesh, taken up on another: the same state, and the same losses from there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from experiments.checkpoint import Checkpoints
from experiments.overrides import apply_overrides
from experiments.program import compile_program
from experiments.registry import resolve

TINY = (
    "model.num_layers=1",
    "model.model_dim=32",
    "model.mlp_dim=64",
    "model.num_heads=2",
    "data.inputs_length=16",
    "train.batch_size=8",
)

# Data x fsdp over the eight simulated devices.
SAVED, RESTORED = ("mesh.data=2", "mesh.fsdp=4"), ("mesh.data=8", "mesh.fsdp=1")


def train(program, state, steps):
    """Makes these steps, on batches that follow from their numbers; returns state and losses."""
    losses = []
    for step in steps:
        draw = np.random.default_rng(step)
        batch = {
            name: draw.integers(1, 500, like.shape).astype(like.dtype)
            for name, like in program.batch_shapes.items()
        }
        progress = np.float32(step / 8), np.float32((step + 1) / 8)
        state, sums = program.step(state, batch, step, *progress)
        losses.append(float(sums["loss"][0] / sums["loss"][1]))
    return state, losses


def values(state):
    """Every array of a state by its path, on the host."""

    def host(leaf):
        keys = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if keys else leaf)

    return {jax.tree_util.keystr(path): host(x) for path, x in jax.tree.leaves_with_path(state)}


def mesh_of(state):
    return state["params"]["token_embedding"].sharding.mesh


def with_mask(state, mesh):
    """The state and a mask in shards, which a checkpoint keeps as bits."""
    mask = jax.random.bernoulli(jax.random.key(1), 0.3, (16, 37))
    return state | {"mask": jax.device_put(mask, NamedSharding(mesh, P("fsdp")))}


def test_two_by_four_is_taken_up_on_eight_by_one(tmp_path):
    experiment = apply_overrides(resolve("bert_baseline", "demo"), TINY)
    saved, other = (
        compile_program(apply_overrides(experiment, mesh)) for mesh in (SAVED, RESTORED)
    )
    state, _ = train(saved, saved.init_state(0), range(3))
    stored = with_mask(state, mesh_of(state))
    before = values(stored)
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(3, stored, {})
        checkpoints.wait()
    _, expected = train(saved, state, range(3, 8))

    place = NamedSharding(mesh_of(other.state_shapes), P("fsdp"))
    like = {"mask": jax.ShapeDtypeStruct(stored["mask"].shape, bool, sharding=place)}
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        restored, _ = checkpoints.restore_latest(other.state_shapes | like, pytest.fail)
    after = values(restored)
    assert after.keys() == before.keys()
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value, err_msg=path)
    del restored["mask"]
    meshes = {leaf.sharding.mesh.shape_tuple for leaf in jax.tree.leaves(restored)}
    assert meshes == {(("replica", 1), ("data", 8), ("fsdp", 1), ("tensor", 1))}
    _, losses = train(other, restored, range(3, 8))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
