"""The layers that are compared: each maps tokens to outputs, and says what it is."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fff import build, cpp
from fff.config import FFFConfig
from fff.kernels import hard_path
from fff.tables import Tables
from models.layers import ACTIVATIONS

# A layer's dense matrices, (D, F) and (F, D).
Dense = tuple[jax.Array, jax.Array]
# Loops over single neurons or single tokens are timed on no more tokens than these.
_FEW_TOKENS = 1024
_FEWER_TOKENS = 64


class Variant(NamedTuple):
    """One way to compute a feedforward layer over tokens that it was made for."""

    name: str
    # "fff", or the dense layer's width.
    layer: str
    # How strong a baseline it is: "fff", "gemm", or one of the published levels.
    level: str
    # () → outputs; the tokens of the published levels may be fewer.
    call: Callable[[], Any]
    tokens: int
    # Floating-point operations, and bytes of weights that one call reads at least once for each use
    # of a row (a product over all tokens uses each row once).
    flops: float
    row_bytes: float
    # Bytes of all weights.
    resident_bytes: float


def fast_variants(cfg: FFFConfig, x_TD: jax.Array, tables: Tables) -> list[Variant]:
    """Returns every kernel of the hard path that this device has."""
    tokens, width = x_TD.shape
    halved = tables._replace(
        in_ND=tables.in_ND.astype(jnp.bfloat16), out_ND=tables.out_ND.astype(jnp.bfloat16)
    )

    def variant(name: str, tables: Tables, function: Callable[..., jax.Array]) -> Variant:
        compiled = jax.jit(function)
        itemsize = tables.in_ND.dtype.itemsize
        return Variant(
            name=name,
            layer="fff",
            level="fff",
            call=lambda: compiled(x_TD, tables),
            tokens=tokens,
            flops=4 * tokens * width * cfg.used_neurons,
            row_bytes=2 * tokens * width * cfg.used_neurons * itemsize,
            resident_bytes=2 * width * cfg.num_neurons * itemsize,
        )

    found = [variant("XLA gather", tables, lambda x, t: hard_path(cfg, x, t, "xla"))]
    if jax.default_backend() != "cpu":
        found += [
            variant("XLA gather, bfloat16", halved, lambda x, t: hard_path(cfg, x, t, "xla")),
            variant("Pallas", tables, lambda x, t: hard_path(cfg, x, t, "pallas")),
        ]
    elif build.is_available():
        found += [
            variant("C++", tables, lambda x, t: cpp.forward(cfg, x, t)),
            variant("C++, bfloat16", halved, lambda x, t: cpp.forward(cfg, x, t)),
            variant("C++, token by token", tables, lambda x, t: cpp.forward(cfg, x, t, "tokens")),
            variant(
                "C++, token by token, bfloat16",
                halved,
                lambda x, t: cpp.forward(cfg, x, t, "tokens"),
            ),
        ]
    return found


def gemm_variants(x_TD: jax.Array, weights: Dense, libraries: Sequence[str]) -> list[Variant]:
    """Returns one product over all tokens for each matrix, in each of the libraries."""
    wi, wo = weights
    width = wi.shape[1]

    def gelu(h: np.ndarray) -> np.ndarray:
        from scipy.special import erf

        # In place: what a call allocates is timed too.
        h *= 0.5 * (1.0 + erf(h * np.float32(0.5**0.5)))
        return h

    calls: dict[str, Callable[[], Any]] = {}
    if "XLA" in libraries:
        compiled = jax.jit(lambda x, wi, wo: ACTIVATIONS["gelu"](x @ wi) @ wo)
        calls["XLA"] = lambda: compiled(x_TD, wi, wo)
    if "NumPy" in libraries:
        x, a, b = (np.asarray(array) for array in (x_TD, wi, wo))
        calls["NumPy"] = lambda: gelu(x @ a) @ b
    if "torch" in libraries and has_torch():
        calls["torch"] = _torch_gemm(x_TD, weights)
    return [_dense(f"{name} GEMM", width, "gemm", call, x_TD, 1) for name, call in calls.items()]


def level_variants(x_TD: jax.Array, weights: Dense) -> list[Variant]:
    """Returns the three published forms of a dense layer that read all weights for each token.

    The loop of dot products is the C++ kernel over as many trees of one node, one token at a time;
    the released code's is single-threaded as well.
    """
    wi, wo = weights
    width = wi.shape[1]
    found = []
    if jax.default_backend() == "cpu" and build.is_available():
        cfg = FFFConfig(trees=width, depth=0)
        tables = Tables(wi.T, jnp.zeros(width), wo)
        few = x_TD[:_FEWER_TOKENS, None]
        loop = jax.jit(
            lambda x, tables: jax.lax.map(lambda token: cpp.forward(cfg, token, tables), x)
        )
        call = lambda: loop(few, tables)  # noqa: E731
        found.append(_dense("1: loop of dot products", width, "level 1", call, few, len(few)))
    x = np.asarray(x_TD[:_FEW_TOKENS])
    rows_in, rows_out = np.ascontiguousarray(np.asarray(wi).T), np.asarray(wo)

    def per_token() -> np.ndarray:
        from scipy.special import erf

        y = np.empty_like(x)
        for t, token in enumerate(x):
            z = rows_in @ token
            y[t] = (0.5 * z * (1 + erf(z * np.float32(0.5**0.5)))) @ rows_out
        return y

    found.append(_dense("2: GEMV for each token", width, "level 2", per_token, x, len(x)))
    if has_torch():
        call = _torch_batched(x, weights)
        found.append(_dense("3: batched matvec, torch", width, "level 3", call, x, len(x)))
    return found


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _dense(
    name: str, width: int, level: str, call: Callable[[], Any], x: Any, times_read: int
) -> Variant:
    tokens, model_dim = x.shape[0], x.shape[-1]
    weight_bytes = 2 * model_dim * width * 4
    return Variant(
        name=name,
        layer=f"dense {width}",
        level=level,
        call=call,
        tokens=tokens,
        flops=4 * tokens * model_dim * width,
        row_bytes=weight_bytes * times_read,
        resident_bytes=weight_bytes,
    )


def _torch_gemm(x_TD: jax.Array, weights: Dense) -> Callable[[], Any]:
    import torch

    # torch.nn.Linear's layout: (out, in).
    x, a, b = (torch.tensor(np.asarray(array)) for array in (x_TD, weights[0].T, weights[1].T))
    linear, gelu = torch.nn.functional.linear, torch.nn.functional.gelu

    @torch.inference_mode()
    def call() -> Any:
        return linear(gelu(linear(x, a)), b)

    return call


def _torch_batched(x_TD: np.ndarray, weights: Dense) -> Callable[[], Any]:
    import torch

    x, a, b = (torch.tensor(np.asarray(array)) for array in (x_TD[:, None], *weights))
    count, gelu = len(x), torch.nn.functional.gelu

    @torch.inference_mode()
    def call() -> Any:
        h = gelu(torch.bmm(x, a.expand(count, *a.shape)))
        return torch.bmm(h, b.expand(count, *b.shape))

    return call
