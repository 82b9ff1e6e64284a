"""Sophia: its update, and its curvature against exact matrices of a tiny model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from experiments import registry
from experiments.config import OptimizerConfig, SophiaConfig
from experiments.optim import make_optimizer
from experiments.optimizers.sophia import (
    SophiaState,
    gauss_newton_diagonal,
    hutchinson_diagonal,
    scale_by_sophia,
    update_curvature,
)
from experiments.program import compile_program
from experiments.step import cut_batch, init_state
from models.api import build
from models.config import BertConfig
from models.errors import UserError

TINY = BertConfig(
    vocab_size=7,
    max_length=4,
    model_dim=4,
    mlp_dim=4,
    num_heads=1,
    num_layers=1,
    pre_norm=True,
    use_bias=False,
    num_token_types=None,
    pooler=False,
    mlm_head="none",
)
BATCH = {
    "tokens": np.array([[3, 4, 5, 6], [6, 3, 3, 5]], np.int32),
    "masked_positions": np.array([[1, 2], [0, 3]], np.int32),
    "masked_labels": np.array([[4, 3], [5, 6]], np.int32),
    # One prediction weighs nothing: it must not be sampled into the curvature.
    "masked_weights": np.array([[1, 1], [1, 0]], np.float32),
}


@pytest.fixture(scope="module")
def model():
    return build(TINY)


@pytest.fixture(scope="module")
def params(model):
    return jax.tree.map(lambda leaf: leaf * 10, model.init(jax.random.key(1)))


def test_update_against_numpy():
    cfg = OptimizerConfig(name="sophia_g", beta1=0.9, epsilon=1e-12, sophia=SophiaConfig(gamma=0.5))
    m, h = np.array([0.1, -2.0, 0.3, 0.0]), np.array([1.0, 1.0, 0.0, 2.0])
    g = np.array([1.0, -1.0, -0.5, 0.2])
    state = SophiaState({"w": jnp.asarray(m)}, {"w": jnp.asarray(h)})
    found, after = scale_by_sophia(cfg).update({"w": jnp.asarray(g)}, state)
    momentum = 0.9 * m + 0.1 * g
    expected = []
    for one, curvature in zip(momentum, h, strict=True):
        # The form of the released code: sign(m) · min(1, |m| / (ρ h)).
        ratio = abs(one) / (0.5 * curvature) if curvature else np.inf
        expected.append(np.sign(one) * min(1.0, ratio))
    np.testing.assert_allclose(found["w"], expected, rtol=1e-6)
    np.testing.assert_allclose(after.momentum["w"], momentum, rtol=1e-6)
    np.testing.assert_array_equal(after.curvature["w"], h)


def exact_gauss_newton(model, params):
    """diag(1/B Σ_b J_bᵀ (diag(p) − p pᵀ) J_b) over the predictions that count."""
    flat, unravel = ravel_pytree(params)
    logits = model.apply(params, BATCH).reshape(-1, 7)
    jacobian = np.asarray(
        jax.jacobian(lambda x: model.apply(unravel(x), BATCH).reshape(-1, 7))(flat), np.float64
    )
    probability = np.asarray(jax.nn.softmax(logits), np.float64)
    diagonal = np.zeros(flat.size)
    counted = np.flatnonzero(BATCH["masked_weights"].reshape(-1))
    for b in counted:
        middle = np.diag(probability[b]) - np.outer(probability[b], probability[b])
        diagonal += np.einsum("vi,vw,wi->i", jacobian[b], middle, jacobian[b])
    return diagonal / len(counted)


def mean_over_draws(estimate, model, params, draws, parts=1):
    cut = cut_batch(BATCH, parts)

    def one(key):
        return ravel_pytree(estimate(model, params, cut, key))[0]

    found = jax.lax.map(one, jax.random.split(jax.random.key(0), draws), batch_size=200)
    return np.asarray(found.mean(0)), np.asarray(found.std(0)) / np.sqrt(draws)


@pytest.mark.parametrize("parts", [1, 2])
def test_gauss_newton_bartlett_is_unbiased(model, params, parts):
    """Also with microbatches: what is squared is the sum over all of them."""
    found, error = mean_over_draws(gauss_newton_diagonal, model, params, 4000, parts)
    exact = exact_gauss_newton(model, params)
    assert exact.max() > 0.01
    assert np.all(np.abs(found - exact) < 5 * error + 1e-3 * exact.max())


@pytest.mark.slow
def test_hutchinson_is_unbiased(model, params):
    flat, unravel = ravel_pytree(params)

    def mean_loss(x):
        total, count = model.losses(unravel(x), BATCH)["loss"]
        return total / count

    exact = np.diag(np.asarray(jax.hessian(mean_loss)(flat)))
    found, error = mean_over_draws(hutchinson_diagonal, model, params, 4000)
    assert np.all(np.abs(found - exact) < 5 * error + 1e-3 * np.abs(exact).max())


def test_clipping_is_of_the_gradient_before_squaring(model, params):
    cut, key = cut_batch(BATCH, 1), jax.random.key(0)
    free = gauss_newton_diagonal(model, params, cut, key)
    clipped = gauss_newton_diagonal(model, params, cut, key, clip_norm=1e-3)
    # ĥ = B ĝ², so that Σ ĥ = B · norm².
    assert float(ravel_pytree(clipped)[0].sum()) == pytest.approx(3 * 1e-6, rel=1e-4)
    assert float(ravel_pytree(free)[0].sum()) > 1e-4


def test_curvature_is_a_running_mean_in_the_optimisers_state(model, params):
    cfg = OptimizerConfig(name="sophia_g", beta2=0.9, sophia=SophiaConfig())
    tx = make_optimizer(cfg, None)
    cut, key = cut_batch(BATCH, 1), jax.random.key(3)
    once = update_curvature(cfg, model, params, tx.init(params), cut, key)
    twice = update_curvature(cfg, model, params, once, cut, key)
    estimate = ravel_pytree(gauss_newton_diagonal(model, params, cut, key))[0]

    def curvature(opt):
        nodes = jax.tree.leaves(opt, is_leaf=lambda x: isinstance(x, SophiaState))
        (state,) = [node for node in nodes if isinstance(node, SophiaState)]
        return ravel_pytree(state.curvature)[0]

    np.testing.assert_allclose(curvature(once), 0.1 * estimate, rtol=1e-5)
    np.testing.assert_allclose(curvature(twice), 0.19 * estimate, rtol=1e-5)


def test_curvature_is_renewed_every_k_steps_only():
    small = registry.resolve("bert_sophia_g", "demo")
    sophia = SophiaConfig(hessian_every_steps=3)
    experiment = dataclasses.replace(
        small,
        model=TINY,
        data=dataclasses.replace(small.data, inputs_length=8),
        optimizer=dataclasses.replace(small.optimizer, sophia=sophia),
        train=dataclasses.replace(small.train, batch_size=2),
        mesh=dataclasses.replace(small.mesh, data=1),
    )
    experiment = dataclasses.replace(
        experiment, model=dataclasses.replace(TINY, max_length=8, vocab_size=1124)
    )
    program = compile_program(experiment)
    state = program.init_state(0)
    batch = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in program.batch_shapes.items()}
    batch["masked_weights"][:] = 1

    def total(state):
        nodes = jax.tree.leaves(state["opt"], is_leaf=lambda x: isinstance(x, SophiaState))
        return sum(
            float(ravel_pytree(node.curvature)[0].sum())
            for node in nodes
            if isinstance(node, SophiaState)
        )

    seen = []
    for step in range(7):
        state, _ = program.step(state, batch, step, np.float32(0.1), np.float32(0.2))
        seen.append(total(state))
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4] == seen[5] != seen[6]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sophia": None}, "belongs to sophia_g and sophia_h"),
        ({"name": "adamw"}, "belongs to sophia_g and sophia_h"),
        ({"sophia": SophiaConfig(gamma=0)}, "optimizer.sophia.gamma=0"),
        ({"sophia": SophiaConfig(hessian_examples=33)}, "hessian_examples=33"),
    ],
)
def test_bad_settings_are_explained(changes, part):
    experiment = registry.resolve("bert_sophia_g", "demo")
    optimizer = dataclasses.replace(experiment.optimizer, **changes)
    with pytest.raises(UserError, match=part):
        dataclasses.replace(experiment, optimizer=optimizer).check()


def test_init_state_has_no_curvature():
    model = build(TINY)
    cfg = OptimizerConfig(name="sophia_g", sophia=SophiaConfig())
    state = init_state(model, make_optimizer(cfg, None), 0)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state["opt"]))
