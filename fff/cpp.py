"""Hard trees by the C++ kernel, called from inside compiled XLA programs on the CPU."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fff import build
from fff.config import FFFConfig
from fff.tables import Path, Tables

# Walks every token by itself, or sorts tokens by subtree so that rows are read once into the cache.
SCHEDULES = {"auto": 0, "tokens": 1, "subtrees": 2}
_ACTIVATIONS = {"gelu": 0, "relu": 1}


def forward(cfg: FFFConfig, x_TD: jax.Array, tables: Tables, schedule: str = "auto") -> jax.Array:
    """Returns what the trees write, float32 (T, D)."""
    call = _call(build.FORWARD, _float32(x_TD.shape))
    return call(*_operands(x_TD, tables), **_forward_attributes(cfg, schedule))


def forward_with_path(cfg: FFFConfig, x_TD: jax.Array, tables: Tables) -> tuple[jax.Array, Path]:
    """Returns what the trees write, float32 (T, D), and the path that the gradient needs."""
    places = (x_TD.shape[0], cfg.trees, cfg.depth + 1)
    results = (_float32(x_TD.shape), jax.ShapeDtypeStruct(places, jnp.int32), _float32(places))
    call = _call(build.FORWARD_WITH_PATH, results)
    y_TD, node_TKL, logit_TKL = call(*_operands(x_TD, tables), **_forward_attributes(cfg, "auto"))
    return y_TD, Path(node_TKL, logit_TKL)


def backward(
    cfg: FFFConfig, x_TD: jax.Array, tables: Tables, path: Path, grad_TD: jax.Array
) -> tuple[jax.Array, Tables]:
    """Returns the gradients of tokens and tables along the path, all float32."""
    results = (
        _float32(x_TD.shape),
        _float32(tables.in_ND.shape),
        _float32(tables.bias_N.shape),
        _float32(tables.out_ND.shape),
    )
    grad_x_TD, *grads = _call(build.BACKWARD, results)(
        x_TD.astype(jnp.float32),
        tables.in_ND,
        tables.out_ND,
        path.node_TKL,
        path.logit_TKL,
        grad_TD.astype(jnp.float32),
        **_attributes(cfg),
    )
    return grad_x_TD, Tables(*grads)


def _call(name: str, results: Any) -> Any:
    if not build.is_available():
        raise RuntimeError(f"{name} is called, but could not be built")
    return jax.ffi.ffi_call(name, results, vmap_method="sequential")


def _operands(x_TD: jax.Array, tables: Tables) -> tuple[jax.Array, ...]:
    return (
        x_TD.astype(jnp.float32),
        tables.in_ND,
        tables.bias_N.astype(jnp.float32),
        tables.out_ND,
    )


def _attributes(cfg: FFFConfig) -> dict[str, Any]:
    return {
        "depth": np.int64(cfg.depth),
        "trees": np.int64(cfg.trees),
        "activation": np.int64(_ACTIVATIONS[cfg.activation]),
    }


def _forward_attributes(cfg: FFFConfig, schedule: str) -> dict[str, Any]:
    return _attributes(cfg) | {
        "ties_right": np.bool_(cfg.ties == "right"),
        "schedule": np.int64(SCHEDULES[schedule]),
    }


def _float32(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)
