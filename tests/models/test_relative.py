"""Relative position buckets against the published rule, one pair at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.relative import position_buckets, relative_bias


def bucket(relative: int, bidirectional: bool, num_buckets: int, max_distance: int) -> int:
    """The published rule in integers: compares powers instead of rounding logarithms."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    # The greatest j with exact * (max_distance / exact) ** (j / n) <= distance.
    n, j = num_buckets - exact, 0
    while j + 1 < n and max_distance ** (j + 1) * exact**n <= distance**n * exact ** (j + 1):
        j += 1
    return first + exact + j


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 11), (10, 1000), (4, 3)])
def test_buckets(bidirectional, num_buckets, max_distance):
    relative = np.arange(-2 * max_distance, 2 * max_distance + 1, dtype=np.int32)
    options = {
        "bidirectional": bidirectional,
        "num_buckets": num_buckets,
        "max_distance": max_distance,
    }
    ours = np.asarray(position_buckets(jnp.asarray(relative), **options))
    np.testing.assert_array_equal(ours, [bucket(int(r), **options) for r in relative])
    assert set(ours) <= set(range(num_buckets))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_bias_and_its_gradient(bidirectional):
    table = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    weights = np.random.default_rng(1).standard_normal((1, 3, 4, 20)).astype(np.float32)
    queries, keys = np.array([0, 3, 7, 15], np.int32), np.arange(20, dtype=np.int32)
    expected, gradient = np.zeros((1, 3, 4, 20)), np.zeros((8, 3))
    for t, s in np.ndindex(4, 20):
        row = bucket(int(keys[s]) - int(queries[t]), bidirectional, 8, 11)
        expected[0, :, t, s] = table[row]
        gradient[row] += weights[0, :, t, s]

    def bias(table):
        return relative_bias(table, queries, keys, bidirectional=bidirectional, max_distance=11)

    np.testing.assert_allclose(bias(table), expected, rtol=1e-6)
    ours = jax.grad(lambda table: jnp.sum(bias(table) * weights))(table)
    np.testing.assert_allclose(ours, gradient, rtol=1e-4, atol=1e-5)
