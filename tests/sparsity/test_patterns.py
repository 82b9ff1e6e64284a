"""N:M and block patterns, against loops over the groups."""

import jax.numpy as jnp
import numpy as np
import pytest

from sparsity.config import Pattern
from sparsity.patterns import block_scores, nm_members, respects, spread_blocks


@pytest.mark.parametrize(("kept", "group"), [(2, 4), (1, 4), (4, 8), (2, 8), (3, 5)])
@pytest.mark.parametrize("axis", [-2, -1])
def test_nm_keeps_the_largest_of_each_group(kept, group, axis):
    rng = np.random.default_rng(0)
    # Rounded, so that groups hold ties, which go by position.
    score = np.round(rng.random((2, 4 * group, 2 * group)) * 4).astype(np.float32)
    expected = np.zeros(score.shape, bool)
    moved = np.moveaxis(score, axis, -1).reshape(-1, group)
    chosen = np.moveaxis(expected, axis, -1).reshape(-1, group)
    for row, picked in zip(moved, chosen, strict=True):
        picked[np.argsort(-row, kind="stable")[:kept]] = True
    shape = np.moveaxis(score, axis, -1).shape
    expected = np.moveaxis(chosen.reshape(shape), -1, axis)
    mask = nm_members(jnp.asarray(score), kept, group, axis)
    np.testing.assert_array_equal(mask, expected)
    assert respects(mask, Pattern("n:m", (kept, group)), axis)


def test_nm_groups_run_along_the_axis_asked_for():
    mask = jnp.asarray([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]], bool)
    assert respects(mask, Pattern("n:m", (2, 4)), -2)
    assert not respects(mask, Pattern("n:m", (2, 4)), -1)


def test_blocks_are_scored_by_their_mean_and_spread_back():
    score = np.random.default_rng(1).random((2, 4, 6)).astype(np.float32)
    pooled = block_scores(jnp.asarray(score), 2, 3)
    for layer, i, j in np.ndindex(2, 2, 2):
        block = score[layer, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
        np.testing.assert_allclose(pooled[layer, i, j], block.mean(), rtol=1e-6)
    mask = spread_blocks(pooled > 0.5, 2, 3)
    assert respects(mask, Pattern("block", (2, 3)), -2)
    np.testing.assert_array_equal(mask[:, ::2, ::3], pooled > 0.5)
    assert not respects(mask.at[0, 0, 0].set(~mask[0, 0, 0]), Pattern("block", (2, 3)), -2)
