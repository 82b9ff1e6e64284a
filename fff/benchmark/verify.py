"""Outputs of every variant against float64, before anything is timed."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erf

from fff.benchmark.variants import Dense, Variant
from fff.config import FFFConfig
from fff.tables import Tables
from models.errors import UserError

# Rows that are compared, and what float32 sums of so many terms may be off by at most.
_ROWS = 512
_TOLERANCE = 2e-5


def walk_in_float64(cfg: FFFConfig, x_TD: np.ndarray, tables: Tables) -> np.ndarray:
    """Returns what the trees write, one tree and level at a time in float64."""
    x, w_in, bias, w_out = (np.asarray(a, np.float64) for a in (x_TD, *tables))
    y = np.zeros_like(x)
    for tree in range(cfg.trees):
        node = np.zeros(len(x), int)
        for _ in range(cfg.depth + 1):
            rows = tree * cfg.nodes_per_tree + node
            z = np.sum(w_in[rows] * x, axis=1) + bias[rows]
            y += _activate(cfg.activation, z)[:, None] * w_out[rows]
            node = 2 * node + 1 + (z >= 0 if cfg.ties == "right" else z > 0)
    return y


def leaves_used(cfg: FFFConfig, node_TKL: np.ndarray) -> dict[str, float]:
    """Returns how many leaves of the first tree tokens go to, and the share of the fullest."""
    counts = np.bincount(node_TKL[:, 0, -1], minlength=cfg.nodes_per_tree)
    return {
        "leaves": 2**cfg.depth,
        "leaves_used": int(np.count_nonzero(counts)),
        "fullest_leaf": float(counts.max() / len(node_TKL)),
    }


def check_fast(cfg: FFFConfig, variant: Variant, x_TD: np.ndarray, tables: Tables) -> float:
    """Returns the largest error of a fast layer; raises UserError if it is none of rounding.

    Where a logit is within rounding of 0 a token may take another path: one in a thousand may.
    """
    if "bfloat16" in variant.name:
        tables = tables._replace(in_ND=_rounded(tables.in_ND), out_ND=_rounded(tables.out_ND))
    wanted = walk_in_float64(cfg, x_TD[:_ROWS], tables)
    error = np.abs(np.asarray(variant.call())[:_ROWS] - wanted).max(axis=1)
    scale = max(1.0, float(np.abs(wanted).max()))
    others = int(np.count_nonzero(error > _TOLERANCE * scale))
    if others > max(1, len(error) // 1000) or np.isnan(error).any():
        raise UserError(f"{variant.name}: {others} of {len(error)} tokens are not those of float64")
    return float(error[error <= _TOLERANCE * scale].max(initial=0.0))


def check_dense(variant: Variant, x_TD: np.ndarray, weights: Dense) -> float:
    """Returns the largest error of a dense layer; raises UserError if it is none of rounding."""
    x, wi, wo = (np.asarray(a, np.float64) for a in (x_TD, *weights))
    rows = min(_ROWS, variant.tokens)
    wanted = _activate("gelu", x[:rows] @ wi) @ wo
    found = np.asarray(variant.call()).reshape(variant.tokens, -1)[:rows]
    error = float(np.abs(found - wanted).max())
    if not error <= 5 * _TOLERANCE * max(1.0, float(np.abs(wanted).max())):
        raise UserError(f"{variant.name}: off by {error:.1e} from float64")
    return error


def _rounded(table: jax.Array) -> jax.Array:
    return table.astype(jnp.bfloat16).astype(jnp.float32)


def _activate(kind: str, z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0) if kind == "relu" else 0.5 * z * (1 + erf(z / 2**0.5))
