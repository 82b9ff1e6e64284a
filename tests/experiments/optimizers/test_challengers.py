"""Lion, Muon and schedule-free AdamW, as they are built here, against a few lines of NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.config import OptimizerConfig
from experiments.optim import learning_rate, make_optimizer
from experiments.optimizers.schedule_free import evaluation_params

RNG = np.random.default_rng(0)
PARAMS = {
    "encoder": {"layers": {"w": RNG.normal(size=(2, 6, 4)), "b": RNG.normal(size=(2, 4))}},
    "token_embedding": RNG.normal(size=(5, 4)),
}
PARAMS = jax.tree.map(lambda leaf: leaf.astype(np.float32), PARAMS)
GRADS = [
    jax.tree.map(lambda leaf: RNG.normal(size=leaf.shape).astype(np.float32), PARAMS)
    for _ in range(4)
]


def run(cfg):
    tx = make_optimizer(cfg, None)
    params, opt = PARAMS, tx.init(PARAMS)
    for index, grads in enumerate(GRADS):
        progress = jnp.float32(index / len(GRADS))
        updates, opt = tx.update(
            grads, opt, params, progress=progress, next_progress=progress, key=None
        )
        params = optax.apply_updates(params, updates)
    return params, opt


def rates(cfg):
    return [float(learning_rate(cfg, jnp.float32(i / len(GRADS)))) for i in range(len(GRADS))]


def test_lion():
    cfg = OptimizerConfig(
        name="lion", beta1=0.9, beta2=0.99, weight_decay=0.1, clip_norm=0, peak_learning_rate=0.01
    )
    found, _ = run(cfg)

    def one(p, gradients, decay):
        m = np.zeros_like(p)
        for rate, g in zip(rates(cfg), gradients, strict=True):
            direction = np.sign(0.9 * m + 0.1 * g)
            p = p - rate * (direction + decay * p)
            m = 0.99 * m + 0.01 * g
        return p

    for name, decay in (("w", 0.1), ("b", 0.0)):
        expected = one(
            PARAMS["encoder"]["layers"][name],
            [g["encoder"]["layers"][name] for g in GRADS],
            decay,
        )
        np.testing.assert_allclose(found["encoder"]["layers"][name], expected, rtol=1e-5)


def test_lion_with_rms_scaling_scales_each_layers_tensor():
    base = OptimizerConfig(
        name="lion", beta2=0.99, clip_norm=0, schedule="constant", warmup_fraction=0.0
    )
    plain, _ = run(base)
    scaled, _ = run(OptimizerConfig(**{**base.__dict__, "scale_by_rms": True}))
    assert not np.allclose(
        plain["encoder"]["layers"]["w"], scaled["encoder"]["layers"]["w"], atol=1e-5
    )


def newton_schulz(x):
    """Five quintic iterations (Jordan et al. 2024), the smaller side first."""
    wide = x.T if x.shape[0] > x.shape[1] else x
    wide = wide / np.linalg.norm(wide)
    for _ in range(5):
        a = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * a + 2.0315 * a @ a) @ wide
    return wide.T if x.shape[0] > x.shape[1] else wide


def test_muon_orthogonalises_each_layer_by_itself_and_leaves_the_rest_to_adam():
    settings = {"clip_norm": 0.0, "peak_learning_rate": 0.01, "warmup_fraction": 0.0}
    found, _ = run(OptimizerConfig(name="muon", schedule="constant", **settings))
    adam, _ = run(OptimizerConfig(name="adamw", schedule="constant", **settings))
    np.testing.assert_allclose(found["token_embedding"], adam["token_embedding"], rtol=1e-6)
    b = found["encoder"]["layers"]["b"]
    np.testing.assert_allclose(b, adam["encoder"]["layers"]["b"], rtol=1e-6)
    for layer in range(2):
        p = PARAMS["encoder"]["layers"]["w"][layer].astype(np.float64)
        m = np.zeros_like(p)
        for count, grads in enumerate(GRADS, 1):
            g = grads["encoder"]["layers"]["w"][layer]
            m = 0.95 * m + 0.05 * g
            # Nesterov with corrected bias, as optax has it.
            ahead = 0.95 * m / (1 - 0.95 ** (count + 1)) + 0.05 * g / (1 - 0.95**count)
            p = p - 0.01 * 0.2 * np.sqrt(max(p.shape)) * newton_schulz(ahead)
        np.testing.assert_allclose(found["encoder"]["layers"]["w"][layer], p, rtol=2e-3, atol=1e-5)


def test_schedule_free_against_its_three_sequences():
    cfg = OptimizerConfig(
        name="schedule_free",
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-8,
        clip_norm=0,
        schedule="constant",
        warmup_fraction=0.5,
        peak_learning_rate=0.1,
        weight_decay=0.01,
    )
    found, opt = run(cfg)
    answers = evaluation_params(found, opt)
    for name, decay in (("w", 0.01), ("b", 0.0)):
        z = x = y = PARAMS["encoder"]["layers"][name].astype(np.float64)
        v, weights, highest = 0.0, 0.0, 0.0
        for count, (rate, grads) in enumerate(zip(rates(cfg), GRADS, strict=True), 1):
            g = grads["encoder"]["layers"][name]
            v = 0.99 * v + 0.01 * g**2
            z = z - rate * (g / (np.sqrt(v / (1 - 0.99**count)) + 1e-8) + decay * y)
            highest = max(highest, rate)
            weights += highest**2
            share = highest**2 / weights if weights else 0.0
            x = (1 - share) * x + share * z
            y = 0.9 * x + 0.1 * z
        np.testing.assert_allclose(found["encoder"]["layers"][name], y, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(answers["encoder"]["layers"][name], x, rtol=1e-4, atol=1e-5)


def test_other_optimisers_answer_with_their_parameters():
    params, opt = run(OptimizerConfig())
    assert evaluation_params(params, opt) is params


@pytest.mark.parametrize("name", ["lion", "muon", "schedule_free", "adamw"])
def test_learning_rate_is_zero_at_the_end_of_a_decaying_schedule(name):
    cfg = OptimizerConfig(name=name, schedule="linear")
    assert float(learning_rate(cfg, jnp.float32(1.0))) == pytest.approx(0.0, abs=1e-9)
