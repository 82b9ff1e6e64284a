"""Shared by the tests of the models."""

import jax
import numpy as np

from models.api import Model
from models.config import T5Config

TINY_T5 = T5Config(
    vocab_size=23,
    model_dim=6,
    mlp_dim=7,
    num_heads=2,
    head_dim=4,
    num_encoder_layers=2,
    num_decoder_layers=2,
    relative_buckets=8,
    relative_max_distance=11,
)


def random_params(model: Model, seed: int = 0) -> dict:
    """Fills a model's parameters from NumPy, of the size that they have when initialised."""
    rng = np.random.default_rng(seed)

    def fill(leaf):
        scale = leaf.shape[-2] ** -0.5 if leaf.ndim > 1 else 1.0
        return (scale * rng.standard_normal(leaf.shape)).astype(leaf.dtype)

    return jax.tree.map(fill, jax.eval_shape(model.init, jax.random.key(0)))


def random_tokens(lengths: tuple[int, ...], vocab_size: int, seed: int = 0) -> np.ndarray:
    """Returns int32 rows of these lengths, padded with 0 to the longest."""
    tokens = np.random.default_rng(seed).integers(1, vocab_size, (len(lengths), max(lengths)))
    inside = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return np.where(inside, tokens, 0).astype(np.int32)


def assert_trees_near(ours, theirs, tolerance: float) -> None:
    """Asserts that in no leaf a value is off by more than `tolerance` of the leaf's greatest."""

    def near(path, one, two):
        one, two = np.asarray(one, np.float32), np.asarray(two, np.float32)
        assert one.shape == two.shape, path
        scale = max(np.abs(two).max(), 1e-30)
        np.testing.assert_allclose(
            one / scale, two / scale, rtol=0, atol=tolerance, err_msg=jax.tree_util.keystr(path)
        )

    jax.tree.map_with_path(near, ours, theirs)
