"""Exact selection by counting, against a stable sort."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from sparsity.threshold import Score, keep_largest


def as_it_is(score: jax.Array) -> Score:
    return Score(lambda x: x, (score,))


select = jax.jit(lambda score, keep: keep_largest([as_it_is(score)], keep)[0])


def by_sorting(score: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Keeps the first `keep` of each layer in stable descending order, and no negative score."""
    flat = np.where(score < 0, -1, score).reshape(score.shape[0], -1)
    mask = np.zeros(flat.shape, bool)
    for layer, order in enumerate(np.argsort(-flat, axis=1, kind="stable")):
        mask[layer, order[: keep[layer]]] = True
    return (mask & (flat >= 0)).reshape(score.shape)


def scores(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    normal = np.abs(rng.normal(size=shape)).astype(np.float32)
    return {
        "continuous": normal,
        "ties": np.round(normal * 2) / 2,
        # The last bit of this value is 1.
        "all equal": np.full(shape, np.nextafter(np.float32(0.25), 1)),
        "zeros": np.where(normal > 1, normal, 0).astype(np.float32),
        "never kept": np.where(normal > 0.5, normal, -1).astype(np.float32),
        "infinite": np.where(normal > 0.7, np.inf, normal).astype(np.float32),
        "wide": (normal * 10.0 ** rng.integers(-30, 30, shape)).astype(np.float32),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["continuous", "ties", "all equal", "zeros", "never kept", "infinite", "wide"]
)
def test_keeps_what_a_stable_sort_keeps(kind):
    rng = np.random.default_rng(0)
    score = scores(kind, (3, 23, 37), rng)
    for keep in ([0, 1, 2], [400, 425, 426], [851, 850, 17], [5, 700, 123]):
        keep = np.asarray(keep, np.int32)
        np.testing.assert_array_equal(select(score, keep), by_sorting(score, keep))


def test_neighbouring_floats_are_told_apart():
    one = np.float32(1)
    score = np.asarray([[[one, np.nextafter(one, 2), np.nextafter(one, 0)]]], np.float32)
    np.testing.assert_array_equal(
        select(score, np.asarray([1], np.int32)), [[[False, True, False]]]
    )
    np.testing.assert_array_equal(select(score, np.asarray([2], np.int32)), [[[True, True, False]]])


def test_one_threshold_over_several_tensors():
    rng = np.random.default_rng(1)
    parts = [scores("ties", (1, rows, cols), rng) for rows, cols in ((5, 7), (1, 9), (8, 3))]
    together = jax.jit(lambda parts, keep: keep_largest([as_it_is(x) for x in parts], keep))
    for keep in (0, 1, 20, 40, 67, 68):
        masks = together(parts, np.asarray([keep], np.int32))
        joined = np.concatenate([part.reshape(1, 1, -1) for part in parts], axis=2)
        expected = by_sorting(joined, np.asarray([keep]))
        np.testing.assert_array_equal(
            np.concatenate([np.reshape(mask, (1, 1, -1)) for mask in masks], axis=2), expected
        )


@pytest.mark.parametrize("spec", [(None, "data", "model"), ("data", None, "model")])
def test_sharding_does_not_change_the_mask(spec):
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    score = scores("ties", (2, 16, 32), np.random.default_rng(2))
    keep = np.asarray([100, 333], np.int32)
    placed = jax.device_put(score, NamedSharding(mesh, PartitionSpec(*spec)))
    np.testing.assert_array_equal(select(placed, keep), by_sorting(score, keep))


def test_nothing_is_sorted():
    text = str(jax.make_jaxpr(select)(jnp.ones((2, 4, 8)), jnp.ones(2, jnp.int32)))
    assert not re.search(r"\b(sort|top_k|approx_top_k)\[", text)
    assert re.search(r"\breduce\[", text)


def test_no_array_of_scores_is_stored():
    shape = (2, 64, 256)

    def choose(weights, mask, keep):
        score = Score(lambda w, m: jnp.where(m, jnp.abs(w), -1), (weights, mask))
        return keep_largest([score], keep)

    args = [
        jax.ShapeDtypeStruct(shape, jnp.float32),
        jax.ShapeDtypeStruct(shape, bool),
        jax.ShapeDtypeStruct((2,), jnp.int32),
    ]
    memory = jax.jit(choose).lower(*args).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 2 * 64 * 256
