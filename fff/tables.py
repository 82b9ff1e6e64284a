"""The neurons of hard trees as two tables of rows, and the rows that a token passes."""

from typing import NamedTuple

import jax

from fff.config import FFFConfig
from models.errors import UserError

# Shape suffixes: T tokens, D width, K trees, L levels of a tree, N nodes of all trees in heap order
# (tree k's node n is row k nodes_per_tree + n, its children are nodes 2n + 1 and 2n + 2).


class Tables(NamedTuple):
    """Weights of the neurons, a row for each: a token then reads whole rows, and few of them."""

    # What a node multiplies a token with (N, D), float32 or bfloat16.
    in_ND: jax.Array
    # What it adds to that product (N,), any float.
    bias_N: jax.Array
    # What its activation is multiplied with in the output (N, D), of the dtype of in_ND.
    out_ND: jax.Array


class Path(NamedTuple):
    """Where tokens went: rows of the tables, and the logits of these nodes."""

    # int32 (T, K, L)
    node_TKL: jax.Array
    # float32 (T, K, L)
    logit_TKL: jax.Array


def check_tables(cfg: FFFConfig, x_TD: jax.Array, tables: Tables) -> None:
    """Raises UserError unless token width and rows fit each other and the trees of `cfg`."""
    rows, width = cfg.trees * cfg.nodes_per_tree, x_TD.shape[-1]
    wanted = ((rows, width), (rows,), (rows, width))
    found = tuple(table.shape for table in tables)
    if found != wanted:
        raise UserError(
            f"tables of shapes {', '.join(map(str, found))} with tokens of width {width}: "
            f"{cfg.trees}x{cfg.depth} has {cfg.trees} x (2^{cfg.depth + 1} - 1) = {rows} rows, so "
            f"they must be {', '.join(map(str, wanted))}."
        )
    if tables.in_ND.dtype != tables.out_ND.dtype:
        raise UserError(
            f"tables of {tables.in_ND.dtype} and {tables.out_ND.dtype}: both must be of one dtype."
        )
