"""Random tokens and weights for measurements: nowhere zero, with routing spread over all leaves."""

import jax
import jax.numpy as jnp
import numpy as np

from fff.config import FFFConfig
from fff.tables import Tables


def random_tokens(tokens: int, model_dim: int, seed: int = 1) -> jax.Array:
    """Returns N(0, 1), what LayerNorm gives a feedforward block, float32 (T, D)."""
    generator = np.random.default_rng(seed)
    return jnp.asarray(generator.standard_normal((tokens, model_dim), np.float32))


def random_tables(cfg: FFFConfig, model_dim: int, dtype: str = "float32", seed: int = 0) -> Tables:
    """Returns tables of N(0, 1/D) and biases of N(0, 0.01)."""
    generator = np.random.default_rng(seed)
    rows, scale = cfg.trees * cfg.nodes_per_tree, np.float32(model_dim**-0.5)

    def table() -> jax.Array:
        values = generator.standard_normal((rows, model_dim), np.float32)
        return jnp.asarray(scale * values, dtype)

    bias = jnp.asarray(0.1 * generator.standard_normal(rows, np.float32))
    return Tables(table(), bias, table())


def random_dense(model_dim: int, width: int, seed: int = 0) -> tuple[jax.Array, jax.Array]:
    """Returns the two matrices of a dense feedforward layer, (D, F) and (F, D)."""
    generator = np.random.default_rng(seed)
    scale = np.float32(model_dim**-0.5)
    return (
        jnp.asarray(scale * generator.standard_normal((model_dim, width), np.float32)),
        jnp.asarray(scale * generator.standard_normal((width, model_dim), np.float32)),
    )
