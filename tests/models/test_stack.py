"""Scanned, unrolled, recomputed and skipped layers give the numbers of a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.stack import run_layers

RNG = np.random.default_rng(0)
LAYERS = {"w": RNG.standard_normal((3, 4, 4)).astype(np.float32), "b": RNG.standard_normal((3, 4))}
LAYERS = jax.tree.map(lambda leaf: leaf.astype(np.float32), LAYERS)
X = RNG.standard_normal((2, 4)).astype(np.float32)
WAYS = [(scan, remat) for scan in (True, False) for remat in ("none", "dots", "full")]


def run_layer(layer, x, key):
    y = jnp.tanh(x @ layer["w"] + layer["b"][None])
    return y if key is None else y + jax.random.normal(key, y.shape)


def plain_loop(layers, active=(0, 1, 2), keys=(None, None, None)):
    x = X
    for i in active:
        x = run_layer(jax.tree.map(lambda leaf, i=i: leaf[i], layers), x, keys[i])
    return jnp.sum(x**2)


@pytest.mark.parametrize(("scan", "remat"), WAYS)
def test_value_and_gradient(scan, remat):
    def run(layers):
        return jnp.sum(run_layers(run_layer, layers, X, scan=scan, remat=remat) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(run))(LAYERS)
    expected, expected_gradient = jax.value_and_grad(plain_loop)(LAYERS)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        gradient,
        expected_gradient,
    )


@pytest.mark.parametrize(("scan", "remat"), WAYS)
def test_skipped_layers_are_identities_without_gradient(scan, remat):
    def run(layers, keep):
        return jnp.sum(run_layers(run_layer, layers, X, keep=keep, scan=scan, remat=remat) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(run))(LAYERS, np.array([1.0, 0.0, 1.0]))
    expected, expected_gradient = jax.value_and_grad(plain_loop)(LAYERS, active=(0, 2))
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        gradient,
        expected_gradient,
    )
    assert not np.any(gradient["w"][1]) and np.all(gradient["w"][0])


@pytest.mark.parametrize("scan", [True, False])
def test_every_layer_has_a_key_of_its_own(scan):
    key = jax.random.key(0)
    value = jnp.sum(run_layers(run_layer, LAYERS, X, key=key, scan=scan, remat="none") ** 2)
    expected = plain_loop(LAYERS, keys=jax.random.split(key, 3))
    np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize("scan", [True, False])
def test_recomputing_saves_fewer_values(scan):
    def wavy_layer(layer, x, key):
        return jnp.tanh(jnp.sin(jnp.sin(run_layer(layer, x, key))))

    def saved(remat):
        _, backward = jax.vjp(
            lambda layers: run_layers(wavy_layer, layers, X, scan=scan, remat=remat), LAYERS
        )
        return sum(leaf.size for leaf in jax.tree.leaves(backward))

    assert saved("full") < saved("dots") < saved("none")


def test_skipped_layers_cost_nothing():
    jaxpr = str(
        jax.make_jaxpr(
            lambda keep: run_layers(run_layer, LAYERS, X, keep=keep, scan=True, remat="none")
        )(np.ones(3))
    )
    assert "cond[" in jaxpr and "select_n" not in jaxpr
