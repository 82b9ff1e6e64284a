"""One update: gradients of summed loss over count, the same however the batch is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.config import OptimizerConfig
from experiments.optim import make_optimizer
from experiments.step import init_state, make_train_step
from models.api import build
from models.config import T5Config

CFG = T5Config(
    vocab_size=64,
    model_dim=16,
    mlp_dim=24,
    num_heads=2,
    head_dim=8,
    num_encoder_layers=1,
    num_decoder_layers=1,
)


def batch_of(rows):
    generator = np.random.default_rng(1)
    batch = {
        "inputs": generator.integers(2, 64, (rows, 9), dtype=np.int32),
        "targets": generator.integers(2, 64, (rows, 7), dtype=np.int32),
    }
    # Uneven padding: a mean of means would differ from the mean.
    batch["targets"][0, 2:] = 0
    batch["targets"][1, 5:] = 0
    return batch


def one_step(microbatches):
    model = build(CFG)
    tx = make_optimizer(OptimizerConfig(warmup_fraction=0.0, clip_norm=0.0), None)
    state = init_state(model, tx, seed=3)
    step = jax.jit(make_train_step(model, tx, microbatches=microbatches))
    return step(state, batch_of(8), jnp.float32(0.0), jnp.float32(0.5))


def test_microbatches_change_nothing():
    state_1, sums_1 = one_step(1)
    state_4, sums_4 = one_step(4)
    for name in ("loss", "nll", "accuracy"):
        np.testing.assert_allclose(sums_1[name], sums_4[name], rtol=1e-5)
    assert float(sums_1["loss"][1]) == 7 * 8 - 5 - 2
    np.testing.assert_allclose(sums_1["grad_norm"][0], sums_4["grad_norm"][0], rtol=1e-4)
    # Adam's first step is the sign of the gradient: only tiny gradients may differ.
    for left, right in zip(
        jax.tree.leaves(state_1["params"]), jax.tree.leaves(state_4["params"]), strict=True
    ):
        assert np.mean(np.abs(left - right) > 1e-5) < 0.01


def test_gradient_is_that_of_the_mean_loss():
    model = build(CFG)
    plain_sgd = optax.with_extra_args_support(optax.sgd(1.0))
    state = init_state(model, plain_sgd, seed=3)
    batch = batch_of(4)

    def mean_loss(params):
        total, count = model.losses(params, batch)["loss"]
        return total / count

    expected = jax.grad(mean_loss)(state["params"])
    moved, _ = make_train_step(model, plain_sgd)(state, batch, jnp.float32(0), jnp.float32(1))
    found = jax.tree.map(jnp.subtract, state["params"], moved["params"])
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6)
    assert int(moved["step"]) == 1


def test_draws_depend_on_the_step():
    cfg = T5Config(**{**CFG.__dict__, "dropout": 0.5})
    model = build(cfg)
    still = optax.with_extra_args_support(optax.set_to_zero())
    state = init_state(model, still, seed=0)
    step = make_train_step(model, still)
    later, first = step(state, batch_of(4), jnp.float32(0), jnp.float32(0.5))
    _, second = step(later, batch_of(4), jnp.float32(0.5), jnp.float32(1))
    _, again = step(state, batch_of(4), jnp.float32(0), jnp.float32(0.5))
    assert float(first["loss"][0]) == float(again["loss"][0])
    assert float(first["loss"][0]) != pytest.approx(float(second["loss"][0]), rel=1e-6)
