"""The GPU's kernel: a block of tokens walks at once, and gathers rows column block by block.

Rows of upper levels are read by every block and stay in the caches of the device by themselves.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from fff.config import FFFConfig
from fff.pallas_tpu import erf
from fff.tables import Tables

# Tokens of one program, and columns of a row that are read at once: both powers of 2.
_BLOCK = 16
_COLUMNS = 128


def forward(
    cfg: FFFConfig, x_TD: jax.Array, tables: Tables, *, interpret: bool = False
) -> jax.Array:
    """Returns what the trees write, float32 (T, D); tokens and biases are float32."""
    tokens, width = x_TD.shape
    missing = -width % _COLUMNS
    padded = -(-tokens // _BLOCK) * _BLOCK
    x_TD = jnp.pad(x_TD, ((0, padded - tokens), (0, missing)))
    tables_in_out = [jnp.pad(t, ((0, 0), (0, missing))) for t in (tables.in_ND, tables.out_ND)]
    whole = pl.BlockSpec(memory_space=pl.ANY)
    block = pl.BlockSpec((_BLOCK, width + missing), lambda i: (i, 0))
    y_TD = pl.pallas_call(
        partial(_kernel, cfg),
        grid=(padded // _BLOCK,),
        in_specs=[block, whole, whole, whole],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x_TD.shape, jnp.float32),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=4),
    )(x_TD, tables.bias_N, *tables_in_out)
    return y_TD[:tokens, :width]


def _kernel(cfg: FFFConfig, x: Any, bias: Any, table_in: Any, table_out: Any, y: Any) -> None:
    columns = [pl.ds(start, _COLUMNS) for start in range(0, x.shape[1], _COLUMNS)]
    for part in columns:
        y[:, part] = jnp.zeros((_BLOCK, _COLUMNS), jnp.float32)

    def one_tree(tree: Any, _: None) -> None:
        node = jnp.zeros(_BLOCK, jnp.int32)
        places, values = [], []
        for _level in range(cfg.depth + 1):
            place = tree * cfg.nodes_per_tree + node
            logit = bias[place]
            for part in columns:
                logit += jnp.sum(table_in[place, part].astype(jnp.float32) * x[:, part], axis=1)
            values.append(
                jnp.maximum(logit, 0.0)
                if cfg.activation == "relu"
                else 0.5 * logit * (1.0 + erf(logit * 0.5**0.5))
            )
            places.append(place)
            goes_right = logit >= 0 if cfg.ties == "right" else logit > 0
            node = 2 * node + 1 + goes_right.astype(jnp.int32)
        for part in columns:
            total = y[:, part]
            for place, value in zip(places, values, strict=True):
                total += value[:, None] * table_out[place, part].astype(jnp.float32)
            y[:, part] = total

    jax.lax.fori_loop(0, cfg.trees, one_tree, None)
