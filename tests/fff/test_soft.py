"""The soft form against the recursion of the paper, and against the hard path."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fff.config import soft_leaves
from fff.layer import SoftFFF
from fff.soft import hard_leaf, soft_mixture, with_loss
from models.functional import functional
from tests.fff import oracle
from tests.fff.cases import soft_tree, tokens

CFG = soft_leaves(24, 3)
WIDTH = 10


def test_mixture_in_training():
    x, tree = tokens(6, WIDTH), soft_tree(CFG, WIDTH)
    wanted = [oracle.soft(CFG, token, tree) for token in np.asarray(x, np.float64)]
    mixed = soft_mixture(CFG, x, tree)
    np.testing.assert_allclose(mixed.y_TD, wanted, atol=2e-6)
    np.testing.assert_allclose(mixed.entropy, oracle.entropy(CFG, x, tree), rtol=1e-5)


def test_one_leaf_in_evaluation_with_all_biases():
    x, tree = tokens(20, WIDTH), soft_tree(CFG, WIDTH)
    wanted = [oracle.soft_in_evaluation(CFG, token, tree) for token in np.asarray(x)]
    np.testing.assert_allclose(hard_leaf(CFG, x, tree), [y for y, _ in wanted], atol=2e-6)
    assert len({number for _, number in wanted}) > 3


@pytest.mark.parametrize("hardened", ["by rounding", "by large logits"])
def test_hardened_gates_give_the_hard_path(hardened):
    x, tree = tokens(20, WIDTH), soft_tree(CFG, WIDTH)
    cfg = CFG
    if hardened == "by rounding":
        cfg = dataclasses.replace(CFG, train_hardened=True)
    else:
        tree = tree._replace(gate_ND=1e4 * tree.gate_ND, gate_bias_N=1e4 * tree.gate_bias_N)
    np.testing.assert_allclose(soft_mixture(cfg, x, tree).y_TD, hard_leaf(cfg, x, tree), atol=2e-6)


def test_gates_have_a_gradient_unless_they_are_rounded():
    x, tree = tokens(5, WIDTH), soft_tree(CFG, WIDTH)

    def gradient(cfg):
        loss = lambda tree: jnp.sum(soft_mixture(cfg, x, tree).y_TD)  # noqa: E731
        return np.abs(jax.grad(loss)(tree).gate_ND).max()

    assert gradient(CFG) > 1e-3
    assert gradient(dataclasses.replace(CFG, train_hardened=True)) == 0


def test_gradient_of_the_mixture_by_differences():
    x, tree = tokens(4, WIDTH), soft_tree(CFG, WIDTH)
    numeric_of = lambda tree: sum(  # noqa: E731
        float(np.sum(oracle.soft(CFG, token, tree))) for token in np.asarray(x, np.float64)
    )
    grads = jax.grad(lambda tree: jnp.sum(soft_mixture(CFG, x, tree).y_TD))(tree)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)
    for name, place in (("gate_ND", (2, 1)), ("in_FDW", (3, 4, 1)), ("out_FWD", (5, 2, 7))):
        values = []
        for change in (1e-5, -1e-5):
            moved = getattr(exact, name).copy()
            moved[place] += change
            values.append(numeric_of(exact._replace(**{name: moved})))
        wanted = (values[0] - values[1]) / 2e-5
        np.testing.assert_allclose(getattr(grads, name)[place], wanted, rtol=1e-3, atol=1e-5)


def test_region_leak_swaps_the_sides_of_that_share_of_gates():
    cfg = dataclasses.replace(CFG, region_leak=0.25, train_hardened=True)
    x, tree = tokens(2000, WIDTH), soft_tree(CFG, WIDTH)
    leaked = soft_mixture(cfg, x, tree, jax.random.key(0)).y_TD
    moved = np.mean(np.any(np.abs(leaked - hard_leaf(cfg, x, tree)) > 1e-5, axis=1))
    # A token stays where it was if none of its three gates is swapped.
    assert abs(moved - (1 - 0.75**3)) < 0.04
    np.testing.assert_array_equal(
        soft_mixture(cfg, x, tree).y_TD, soft_mixture(cfg, x, tree, None).y_TD
    )


def test_with_loss_adds_to_the_gradient_only():
    def total(a):
        return jnp.sum(with_loss(2.0 * a, 3.0 * jnp.sum(a**2)))

    a = jnp.asarray([1.0, -2.0])
    assert total(a) == -2.0
    np.testing.assert_allclose(jax.grad(total)(a), 2.0 + 6.0 * a)


@pytest.mark.parametrize(("over", "share"), [("sum", 1.0), ("mean", 1 / 7)])
def test_hardening_is_in_the_gradient_of_training(over, share):
    x = tokens(6, WIDTH).reshape(2, 3, WIDTH)

    def layer(hardening):
        cfg = dataclasses.replace(CFG, hardening=hardening, hardening_over=over)
        return functional(lambda key: SoftFFF(key, cfg, WIDTH))

    init, plain = layer(0.0)
    _, hardened = layer(0.5)
    params, key = init(jax.random.key(0)), jax.random.key(1)

    def gradient(apply):
        return jax.grad(lambda p: jnp.sum(apply(p, SoftFFF.__call__, x, key=key)))(params)

    def entropy(params):
        logits = x.reshape(-1, WIDTH) @ params["gate"].T + params["gate_bias"][None]
        p = jax.nn.sigmoid(logits)
        return -jnp.sum(p * jnp.log(p) + (1 - p) * jnp.log(1 - p))

    wanted = jax.grad(entropy)(params)["gate"] * 0.5 * share
    found = gradient(hardened)["gate"] - gradient(plain)["gate"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
