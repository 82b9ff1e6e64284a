"""Masks at one bit a weight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparsity.bits import pack, unpack


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("shape", [(3, 4, 16), (5, 13), (2, 1)])
def test_round_trip_at_one_bit_a_weight(shape, xp):
    mask = np.random.default_rng(0).random(shape) < 0.5
    packed = pack({"a/b": xp.asarray(mask)}, xp)
    assert packed["a/b"].dtype == np.uint8
    assert packed["a/b"].shape == (*shape[:-1], -(-shape[-1] // 8))
    np.testing.assert_array_equal(unpack(packed, {"a/b": shape}, xp)["a/b"], mask)


def test_jit_and_numpy_pack_the_same_bits():
    mask = np.random.default_rng(1).random((4, 24)) < 0.5
    packed = jax.jit(pack)({"m": mask})["m"]
    np.testing.assert_array_equal(packed, pack({"m": mask}, np)["m"])
    assert packed.nbytes * 8 == mask.size
