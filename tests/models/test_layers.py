"""Norms, feedforward blocks and dropout against NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.functional import functional
from models.layers import GatedMlp, Mlp, dropout, layer_norm, rms_norm

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 5)).astype(np.float32) + 1.0
NORMAL = jax.nn.initializers.normal(1.0)

_erf = np.vectorize(math.erf)
NUMPY_ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def test_rms_norm():
    scale = RNG.standard_normal(5).astype(np.float32)
    expected = X / np.sqrt((X.astype(np.float64) ** 2).mean(-1, keepdims=True) + 0.1) * scale
    np.testing.assert_allclose(rms_norm(X, scale, 0.1), expected, rtol=1e-5)


@pytest.mark.parametrize("with_bias", [True, False])
def test_layer_norm(with_bias):
    scale, bias = RNG.standard_normal((2, 5)).astype(np.float32)
    x = X.astype(np.float64)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.1) * scale
    if with_bias:
        expected += bias
    ours = layer_norm(X, scale, bias if with_bias else None, 0.1)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_norms_of_bfloat16_are_computed_in_float32():
    x = jnp.asarray(RNG.standard_normal((50, 100)), jnp.bfloat16)
    scale = RNG.standard_normal(100).astype(np.float32)
    exact = np.float64(x)
    exact = exact / np.sqrt((exact**2).mean(-1, keepdims=True)) * scale
    rounded_once = jnp.asarray(np.float32(exact)).astype(jnp.bfloat16)
    y = rms_norm(x, scale, 0.0)
    assert y.dtype == jnp.bfloat16
    assert np.mean(np.asarray(y == rounded_once)) > 0.999


@pytest.mark.parametrize("activation", NUMPY_ACTIVATIONS)
def test_mlp(activation):
    init, apply = functional(
        lambda key: Mlp(
            key, 5, 7, activation=activation, init_wi=NORMAL, init_wo=NORMAL, use_bias=True
        )
    )
    params = init(jax.random.key(0))
    params |= {name: RNG.standard_normal(params[name].shape) for name in ("wi_bias", "wo_bias")}
    hidden = NUMPY_ACTIVATIONS[activation](X @ np.float64(params["wi"]) + params["wi_bias"])
    expected = hidden @ np.float64(params["wo"]) + params["wo_bias"]
    np.testing.assert_allclose(apply(params, Mlp.__call__, X), expected, rtol=1e-4, atol=1e-4)


def test_gated_mlp():
    init, apply = functional(
        lambda key: GatedMlp(key, 5, 7, activation="gelu", init_wi=NORMAL, init_wo=NORMAL)
    )
    params = init(jax.random.key(0))
    gate, up, wo = (np.float64(params[name]) for name in ("wi_gate", "wi_up", "wo"))
    expected = (NUMPY_ACTIVATIONS["gelu"](X @ gate) * (X @ up)) @ wo
    np.testing.assert_allclose(apply(params, GatedMlp.__call__, X), expected, rtol=1e-4, atol=1e-4)


def test_dropout_keeps_the_mean_and_needs_a_key():
    x = np.ones((200, 500), np.float32)
    y = np.asarray(dropout(x, 0.25, jax.random.key(0)))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / x.size)
    assert dropout(x, 0.25, None) is x
    assert dropout(x, 0.0, jax.random.key(0)) is x
