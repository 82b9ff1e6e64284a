"""The layers as modules: parameters, initial values, and which path training takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fff.config import FFFConfig, soft_leaves
from fff.layer import HardFFF, SoftFFF, make_mlp
from models.functional import functional

WIDTH = 64


def layer(form, cfg):
    return functional(lambda key: form(key, cfg, WIDTH))


@pytest.mark.parametrize("init", ["normal", "uniform"])
def test_initial_values_of_the_hard_form(init):
    cfg = FFFConfig(trees=8, depth=5, init=init)
    params = layer(HardFFF, cfg).init(jax.random.key(0))
    assert {name: leaf.shape for name, leaf in params.items()} == {
        "node_in": (504, 64),
        "node_in_bias": (504,),
        "node_out": (504, 64),
    }
    if init == "normal":
        for name in ("node_in", "node_out"):
            np.testing.assert_allclose(np.std(params[name]), 0.02, rtol=0.03)
        assert not params["node_in_bias"].any()
        return
    # A token uses 8 x 6 neurons.
    for name, bound in (("node_in", 64**-0.5), ("node_in_bias", 64**-0.5), ("node_out", 48**-0.5)):
        largest = np.abs(params[name]).max()
        assert 0.97 * bound < largest <= bound


def test_initial_values_of_the_soft_form():
    cfg = soft_leaves(32, 4)
    params = layer(SoftFFF, cfg).init(jax.random.key(0))
    bounds = dict.fromkeys(("gate", "gate_bias", "leaf_in", "leaf_in_bias"), WIDTH ** (-0.5))
    bounds |= {"leaf_out": 0.5, "leaf_out_bias": 0.5}
    assert set(params) == set(bounds)
    for name, bound in bounds.items():
        assert 0.7 * bound < np.abs(params[name]).max() <= bound


def test_without_biases():
    assert set(layer(HardFFF, FFFConfig(depth=2, use_bias=False)).init(jax.random.key(0))) == {
        "node_in",
        "node_out",
    }
    cfg = soft_leaves(32, 4)
    cfg = type(cfg)(**{**vars(cfg), "use_bias": False})
    init, apply = layer(SoftFFF, cfg)
    x = jnp.ones((1, 2, WIDTH))
    params = init(jax.random.key(0))
    assert set(params) == {"gate", "leaf_in", "leaf_out"}
    for key in (None, jax.random.key(1)):
        assert apply(params, SoftFFF.__call__, x, key=key).shape == x.shape


def test_hard_form_is_the_same_in_training_and_evaluation():
    init, apply = layer(HardFFF, FFFConfig(trees=2, depth=4, init="uniform"))
    params, x = init(jax.random.key(0)), jax.random.normal(jax.random.key(2), (2, 3, WIDTH))
    trained = apply(params, HardFFF.__call__, x, key=jax.random.key(1))
    np.testing.assert_allclose(trained, apply(params, HardFFF.__call__, x), atol=1e-6)


def test_soft_form_mixes_in_training_only():
    init, apply = layer(SoftFFF, soft_leaves(32, 4))
    params, x = init(jax.random.key(0)), jax.random.normal(jax.random.key(2), (2, 3, WIDTH))
    mixed = apply(params, SoftFFF.__call__, x, key=jax.random.key(1))
    assert np.abs(mixed - apply(params, SoftFFF.__call__, x)).max() > 1e-3


def test_none_adds_nothing():
    block = make_mlp(FFFConfig(form="none"), WIDTH)(jax.random.key(0))
    assert not block(jnp.ones((1, 2, WIDTH))).any()
