"""A sharded state comes back from a checkpoint onto whatever mesh the run goes on with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from experiments.checkpoint import Checkpoints
from models.config import MeshConfig
from models.mesh import make_mesh
from models.sharding import shard_like, shard_params

RULES = [(r"wi", P("fsdp", "tensor"))]


def some_state():
    key = jax.random.key(3)
    wi = jax.random.normal(key, (4, 20))
    return {"params": {"wi": wi}, "masks": {"wi": wi > 0}, "step": jnp.int32(7), "key": key}


def placed(mesh):
    shapes = jax.eval_shape(some_state)
    return shard_like(shard_params(shapes["params"], mesh, RULES), shapes, mesh)


@pytest.mark.parametrize("again", [MeshConfig(fsdp=2, tensor=4), MeshConfig(data=1, tensor=2)])
def test_state_comes_back_onto_a_mesh(tmp_path, again):
    first = placed(make_mesh(MeshConfig(fsdp=4, tensor=2)))
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        state = jax.device_put(some_state(), jax.tree.map(lambda leaf: leaf.sharding, first))
        checkpoints.save(7, state, {})
        checkpoints.wait()
    likes = placed(make_mesh(again))
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        restored, _ = checkpoints.restore_latest(likes, pytest.fail)
    wanted = some_state()
    for name in ("params", "masks"):
        np.testing.assert_array_equal(restored[name]["wi"], wanted[name]["wi"])
    assert int(restored["step"]) == 7
    np.testing.assert_array_equal(
        jax.random.key_data(restored["key"]), jax.random.key_data(wanted["key"])
    )
    for leaf, like in zip(jax.tree.leaves(restored), jax.tree.leaves(likes), strict=True):
        assert leaf.sharding.is_equivalent_to(like.sharding, leaf.ndim)
    assert not restored["masks"]["wi"].sharding.is_fully_replicated
