"""Norms, feedforward blocks and dropout."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from models.functional import Module, Param

Initializer = Callable[..., jax.Array]
# Builds the feedforward block of one layer from a key; it is called as `mlp(x_BTD, key=...)`.
MakeMlp = Callable[[jax.Array], Module]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
}


def dense(x: jax.Array, kernel: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """`x @ kernel + bias` in the dtype of x; x (..., in), kernel (in, out), bias (out,)."""
    y = jax.lax.dot_general(x, kernel.astype(x.dtype), (((x.ndim - 1,), (0,)), ((), ())))
    return y if bias is None else y + broadcast_last(bias.astype(x.dtype), y.ndim)


def broadcast_last(vector: jax.Array, ndim: int) -> jax.Array:
    """Gives a vector the leading axes with which it multiplies or adds to an array's last axis."""
    return vector.reshape((1,) * (ndim - 1) + vector.shape)


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float) -> jax.Array:
    """Divides by the root mean square of the last axis, in float32 (arXiv 1910.07467, eq. 4)."""
    x32 = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + epsilon)
    return (x32 * inverse * broadcast_last(scale.astype(jnp.float32), x.ndim)).astype(x.dtype)


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array | None, epsilon: float) -> jax.Array:
    """Centres and scales the last axis to unit variance, in float32 (arXiv 1607.06450, eq. 3)."""
    x32 = x.astype(jnp.float32)
    centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + epsilon)
    y = centred * inverse * broadcast_last(scale.astype(jnp.float32), x.ndim)
    if bias is not None:
        y += broadcast_last(bias.astype(jnp.float32), x.ndim)
    return y.astype(x.dtype)


def dropout(x: jax.Array, rate: float, key: jax.Array | None) -> jax.Array:
    """Zeroes values with probability `rate` and scales the others up; no key, no dropout."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))


def split_key(key: jax.Array | None, num: int) -> list[jax.Array | None]:
    """Splits a key, or passes on that there is none."""
    return [None] * num if key is None else list(jax.random.split(key, num))


class Mlp(Module):
    """The ungated feedforward block: activation(x wi) wo, with biases if asked for."""

    def __init__(
        self,
        key: jax.Array,
        model_dim: int,
        mlp_dim: int,
        *,
        activation: str,
        init_wi: Initializer,
        init_wo: Initializer,
        use_bias: bool = False,
        dropout: float = 0.0,
        dtype: str = "float32",
    ):
        key_wi, key_wo = jax.random.split(key)
        self.wi = Param(init_wi(key_wi, (model_dim, mlp_dim), dtype))
        self.wo = Param(init_wo(key_wo, (mlp_dim, model_dim), dtype))
        if use_bias:
            self.wi_bias = Param(jnp.zeros((mlp_dim,), dtype))
            self.wo_bias = Param(jnp.zeros((model_dim,), dtype))
        self.use_bias = use_bias
        self.activation = activation
        self.dropout = dropout

    def __call__(self, x_BTD: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        wi_bias, wo_bias = (self.wi_bias[...], self.wo_bias[...]) if self.use_bias else (None, None)
        h_BTF = ACTIVATIONS[self.activation](dense(x_BTD, self.wi[...], wi_bias))
        return dense(dropout(h_BTF, self.dropout, key), self.wo[...], wo_bias)


class GatedMlp(Module):
    """The gated feedforward block: (activation(x wi_gate) * (x wi_up)) wo (arXiv 2002.05202)."""

    def __init__(
        self,
        key: jax.Array,
        model_dim: int,
        mlp_dim: int,
        *,
        activation: str,
        init_wi: Initializer,
        init_wo: Initializer,
        dropout: float = 0.0,
        dtype: str = "float32",
    ):
        key_gate, key_up, key_wo = jax.random.split(key, 3)
        self.wi_gate = Param(init_wi(key_gate, (model_dim, mlp_dim), dtype))
        self.wi_up = Param(init_wi(key_up, (model_dim, mlp_dim), dtype))
        self.wo = Param(init_wo(key_wo, (mlp_dim, model_dim), dtype))
        self.activation = activation
        self.dropout = dropout

    def __call__(self, x_BTD: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        gate_BTF = ACTIVATIONS[self.activation](dense(x_BTD, self.wi_gate[...]))
        h_BTF = gate_BTF * dense(x_BTD, self.wi_up[...])
        return dense(dropout(h_BTF, self.dropout, key), self.wo[...])
