"""Hard trees in XLA's own operations: gathered rows, or all neurons and a mask."""

import jax
import jax.numpy as jnp

from fff.config import FFFConfig
from fff.tables import Path, Tables
from models.layers import ACTIVATIONS


def goes_right(cfg: FFFConfig, logit: jax.Array) -> jax.Array:
    """Whether a node sends a token to its right child; NaN never does."""
    return logit >= 0 if cfg.ties == "right" else logit > 0


def gather(cfg: FFFConfig, x_TD: jax.Array, tables: Tables) -> tuple[jax.Array, Path]:
    """Walks level by level, then sums what the nodes write: float32 (T, D), and the path.

    Two tables and a sum after the walk let XLA fuse each gather into its only user; one table of
    [in | out] rows, or a sum during the walk, would keep the gathered rows in memory.
    """
    x_TD = x_TD.astype(jnp.float32)
    path = walk(cfg, x_TD, tables)
    value_TKL = ACTIVATIONS[cfg.activation](path.logit_TKL)
    y_TD = jnp.zeros_like(x_TD)
    for level in range(cfg.depth + 1):
        rows_TKD = _rows(tables.out_ND, path.node_TKL[:, :, level])
        y_TD += jnp.sum(rows_TKD * value_TKL[:, :, level, None], axis=1)
    return y_TD, path


def walk(cfg: FFFConfig, x_TD: jax.Array, tables: Tables) -> Path:
    """Returns the path of every token."""
    first_K = jnp.arange(cfg.trees, dtype=jnp.int32) * cfg.nodes_per_tree
    local_TK = jnp.zeros((x_TD.shape[0], cfg.trees), jnp.int32)
    nodes, logits = [], []
    for _ in range(cfg.depth + 1):
        node_TK = local_TK + first_K[None]
        products_TKD = _rows(tables.in_ND, node_TK) * x_TD[:, None].astype(jnp.float32)
        logit_TK = jnp.sum(products_TKD, axis=-1) + tables.bias_N.astype(jnp.float32)[node_TK]
        nodes.append(node_TK)
        logits.append(logit_TK)
        local_TK = 2 * local_TK + 1 + goes_right(cfg, logit_TK)
    return Path(jnp.stack(nodes, axis=-1), jnp.stack(logits, axis=-1))


def scatter(
    cfg: FFFConfig, x_TD: jax.Array, tables: Tables, path: Path, grad_TD: jax.Array
) -> tuple[jax.Array, Tables]:
    """Gradients of `gather` along the path, which itself has none: of tokens, and of the tables."""
    x_TD, grad_TD = x_TD.astype(jnp.float32), grad_TD.astype(jnp.float32)
    value_TKL, slope = jax.vjp(ACTIVATIONS[cfg.activation], path.logit_TKL)
    grad_value = [
        jnp.sum(_rows(tables.out_ND, path.node_TKL[:, :, level]) * grad_TD[:, None], axis=-1)
        for level in range(cfg.depth + 1)
    ]
    (grad_logit_TKL,) = slope(jnp.stack(grad_value, axis=-1))
    grad_x_TD = jnp.zeros_like(x_TD)
    grad_in_ND = jnp.zeros(tables.in_ND.shape, jnp.float32)
    grad_out_ND = jnp.zeros(tables.out_ND.shape, jnp.float32)
    for level in range(cfg.depth + 1):
        node_TK = path.node_TKL[:, :, level]
        grad_TK1, value_TK1 = grad_logit_TKL[:, :, level, None], value_TKL[:, :, level, None]
        grad_x_TD += jnp.sum(_rows(tables.in_ND, node_TK) * grad_TK1, axis=1)
        grad_in_ND = grad_in_ND.at[node_TK].add(grad_TK1 * x_TD[:, None])
        grad_out_ND = grad_out_ND.at[node_TK].add(value_TK1 * grad_TD[:, None])
    grad_bias_N = jnp.zeros(tables.bias_N.shape, jnp.float32).at[path.node_TKL].add(grad_logit_TKL)
    return grad_x_TD, Tables(grad_in_ND, grad_bias_N, grad_out_ND)


def masked_dense(cfg: FFFConfig, x_TD: jax.Array, tables: Tables) -> jax.Array:
    """Computes every neuron and zeroes those off the path, as the released training code does.

    Two matrix products whatever the routing; differentiable as it is, float32 (T, D). Products are
    in the dtype of x with float32 sums, so that in bfloat16 a token whose logit is near 0 may take
    another path than `gather` gives it.
    """
    logit_TN = jax.lax.dot_general(
        x_TD,
        tables.in_ND.astype(x_TD.dtype),
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.float32,
    )
    logit_TN += tables.bias_N.astype(jnp.float32)[None]
    mask_TN = path_mask(cfg, logit_TN)
    value_TN = jnp.where(mask_TN, ACTIVATIONS[cfg.activation](logit_TN), 0.0)
    return jax.lax.dot_general(
        value_TN.astype(x_TD.dtype),
        tables.out_ND.astype(x_TD.dtype),
        (((1,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )


def path_mask(cfg: FFFConfig, logit_TN: jax.Array) -> jax.Array:
    """Returns which nodes each token passes, bool (T, N), from the logits of all nodes."""
    tokens = logit_TN.shape[0]
    right = goes_right(cfg, logit_TN).reshape(tokens, cfg.trees, cfg.nodes_per_tree)
    on_level = jnp.ones((tokens, cfg.trees, 1), bool)
    masks = [on_level]
    for level in range(cfg.depth):
        first = 2**level - 1
        right_here = right[:, :, first : first + 2**level]
        both = jnp.stack([on_level & ~right_here, on_level & right_here], axis=-1)
        on_level = both.reshape(tokens, cfg.trees, 2 ** (level + 1))
        masks.append(on_level)
    return jnp.concatenate(masks, axis=-1).reshape(logit_TN.shape)


def _rows(table_ND: jax.Array, node_TK: jax.Array) -> jax.Array:
    """Gathers rows, float32 (T, K, D); nodes are in range, so that nothing need be checked."""
    return table_ND.at[node_TK].get(mode="promise_in_bounds").astype(jnp.float32)
