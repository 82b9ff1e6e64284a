"""The TPU's kernel: upper levels of the trees in VMEM, rows of the others fetched as needed."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from fff.config import FFFConfig
from fff.tables import Tables

_LANES = 128
# Tokens of one step of the grid.
_BLOCK = 64
# Bytes of VMEM for the rows of upper levels.
_UPPER_BYTES = 4 * 2**20


def forward(
    cfg: FFFConfig, x_TD: jax.Array, tables: Tables, *, interpret: bool = False
) -> jax.Array:
    """Returns what the trees write, float32 (T, D); tokens and biases are float32."""
    tokens, width = x_TD.shape
    # A row becomes whole tiles of its own, so that one row can be fetched by itself.
    rows = -(-width // _LANES)
    block = min(_BLOCK, tokens)
    padded = -(-tokens // block) * block
    x = _tiles(x_TD, padded, rows)
    table_in, table_out = (_tiles(t, len(t), rows) for t in (tables.in_ND, tables.out_ND))
    upper = upper_levels(cfg, rows * _LANES * tables.in_ND.dtype.itemsize)
    top_in, top_out = (_top(cfg, table, upper) for table in (table_in, table_out))
    y = pl.pallas_call(
        partial(_kernel, cfg, upper),
        grid=(padded // block,),
        in_specs=[
            pl.BlockSpec((block, rows, _LANES), lambda i: (i, 0, 0)),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(top_in.shape, lambda i: (0, 0, 0)),
            pl.BlockSpec(top_out.shape, lambda i: (0, 0, 0)),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((block, rows, _LANES), lambda i: (i, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((padded, rows, _LANES), jnp.float32),
        scratch_shapes=[
            pltpu.VMEM((rows, _LANES), table_in.dtype),
            pltpu.VMEM((cfg.depth + 1, rows, _LANES), table_out.dtype),
            pltpu.SemaphoreType.DMA(()),
            pltpu.SemaphoreType.DMA((cfg.depth + 1,)),
        ],
        interpret=interpret,
    )(x, tables.bias_N, top_in, top_out, table_in, table_out)
    return y.reshape(padded, -1)[:tokens, :width]


def upper_levels(cfg: FFFConfig, row_bytes: int) -> int:
    """Returns how many levels of all trees fit into VMEM, at least the first."""
    levels = 1
    while (
        levels <= cfg.depth and 2 * cfg.trees * (2 ** (levels + 1) - 1) * row_bytes < _UPPER_BYTES
    ):
        levels += 1
    return levels


def _tiles(rows_RD: jax.Array, count: int, rows: int) -> jax.Array:
    missing = ((0, count - len(rows_RD)), (0, rows * _LANES - rows_RD.shape[1]))
    return jnp.pad(rows_RD, missing).reshape(count, rows, _LANES)


def _top(cfg: FFFConfig, table: jax.Array, levels: int) -> jax.Array:
    """Returns the first levels of every tree, tree after tree."""
    by_tree = table.reshape(cfg.trees, cfg.nodes_per_tree, *table.shape[1:])
    return by_tree[:, : 2**levels - 1].reshape(-1, *table.shape[1:])


def _kernel(
    cfg: FFFConfig,
    upper: int,
    x: Any,
    bias: Any,
    top_in: Any,
    top_out: Any,
    table_in: Any,
    table_out: Any,
    y: Any,
    row_in: Any,
    rows_out: Any,
    in_arrived: Any,
    out_arrived: Any,
) -> None:
    top_nodes = 2**upper - 1

    def one_tree(token: Any, tree: Any, total: jax.Array) -> jax.Array:
        x_row, node, values, fetches = x[token], jnp.int32(0), [], []
        for level in range(cfg.depth + 1):
            place = tree * cfg.nodes_per_tree + node
            if level < upper:
                row = top_in[tree * top_nodes + node]
            else:
                fetch = pltpu.make_async_copy(table_in.at[place], row_in, in_arrived)
                fetch.start()
                # What the node writes is needed only after the walk, and comes during it.
                fetches.append(
                    pltpu.make_async_copy(
                        table_out.at[place], rows_out.at[level], out_arrived.at[level]
                    )
                )
                fetches[-1].start()
                fetch.wait()
                row = row_in[...]
            logit = jnp.sum(row.astype(jnp.float32) * x_row) + bias[place]
            value = _activate(cfg, logit)
            if level < upper:
                total += value * top_out[tree * top_nodes + node].astype(jnp.float32)
            else:
                values.append(value)
            goes_right = logit >= 0 if cfg.ties == "right" else logit > 0
            node = 2 * node + 1 + goes_right.astype(jnp.int32)
        for level, (value, fetch) in enumerate(zip(values, fetches, strict=True), upper):
            fetch.wait()
            total += value * rows_out[level].astype(jnp.float32)
        return total

    def one_token(token: Any, _: None) -> None:
        zeros = jnp.zeros(x.shape[1:], jnp.float32)
        y[token] = jax.lax.fori_loop(0, cfg.trees, partial(one_tree, token), zeros)

    jax.lax.fori_loop(0, x.shape[0], one_token, None)


def _activate(cfg: FFFConfig, z: jax.Array) -> jax.Array:
    """GELU by a ratio of polynomials for erf, to about 2e-7, as XLA has it; or ReLU."""
    if cfg.activation == "relu":
        return jnp.maximum(z, 0.0)
    return 0.5 * z * (1.0 + erf(z * 0.5**0.5))


_NUMERATOR = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_DENOMINATOR = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
    *(-7.37332916720468e-03, -1.42647390514189e-02),
)


def erf(x: jax.Array) -> jax.Array:
    """Returns erf(x) in operations that every Pallas backend has; NaN stays NaN."""
    x = jnp.where(x < -4.0, -4.0, jnp.where(x > 4.0, 4.0, x))
    square = x * x
    numerator = denominator = jnp.zeros_like(x)
    for coefficient in _NUMERATOR:
        numerator = numerator * square + coefficient
    for coefficient in _DENOMINATOR:
        denominator = denominator * square + coefficient
    return x * numerator / denominator
