"""Learning rates and updates against closed forms and a NumPy AdamW."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config import OptimizerConfig
from experiments.optim import learning_rate, make_optimizer


def rate(progress, **fields):
    cfg = OptimizerConfig(peak_learning_rate=2.0, **fields)
    return float(learning_rate(cfg, jnp.float32(progress)))


def test_cosine_rises_and_decays_to_its_floor():
    fields = {"schedule": "cosine", "warmup_fraction": 0.2, "final_learning_rate_ratio": 0.1}
    assert rate(0.0, **fields) == 0.0
    assert rate(0.1, **fields) == pytest.approx(1.0)
    assert rate(0.2, **fields) == pytest.approx(2.0)
    assert rate(0.6, **fields) == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert rate(1.0, **fields) == pytest.approx(0.2)


def test_rsqrt_is_the_inverse_root_of_progress():
    fields = {"schedule": "rsqrt", "warmup_fraction": 0.04}
    assert rate(0.04, **fields) == pytest.approx(2.0)
    assert rate(0.16, **fields) == pytest.approx(1.0)
    assert rate(1.0, **fields) == pytest.approx(2.0 * 0.2)


def test_linear_and_constant():
    assert rate(0.75, schedule="linear", warmup_fraction=0.5) == pytest.approx(1.0)
    assert rate(1.0, schedule="linear", warmup_fraction=0.0) == pytest.approx(0.0)
    assert rate(0.9, schedule="constant", warmup_fraction=0.1) == pytest.approx(2.0)


def numpy_adamw(params, grads_by_step, cfg, rates, decayed):
    """AdamW with clipping to a global norm, from its definition, one array at a time."""
    moments = {name: (np.zeros_like(p), np.zeros_like(p)) for name, p in params.items()}
    for step, (grads, step_rate) in enumerate(zip(grads_by_step, rates, strict=True), 1):
        norm = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in grads.values()))
        scale = min(1.0, cfg.clip_norm / norm)
        for name, gradient in grads.items():
            g = gradient * scale
            m, v = moments[name]
            m = cfg.beta1 * m + (1 - cfg.beta1) * g
            v = cfg.beta2 * v + (1 - cfg.beta2) * g * g
            moments[name] = (m, v)
            update = m / (1 - cfg.beta1**step)
            update = update / (np.sqrt(v / (1 - cfg.beta2**step)) + cfg.epsilon)
            if name in decayed:
                update = update + cfg.weight_decay * params[name]
            params[name] = params[name] - step_rate * update
    return params


def test_adamw_follows_its_definition():
    cfg = OptimizerConfig(
        peak_learning_rate=0.1, weight_decay=0.3, clip_norm=1.5, beta2=0.95, warmup_fraction=0.25
    )
    generator = np.random.default_rng(0)
    shapes = {"matrix": (4, 5), "layers": {"norm": (3, 5), "kernel": (3, 5, 2)}, "bias": (5,)}
    draw = lambda: jax.tree.map(  # noqa: E731
        lambda shape: generator.normal(size=shape), shapes, is_leaf=lambda x: isinstance(x, tuple)
    )
    flat = lambda tree: {  # noqa: E731
        "matrix": tree["matrix"],
        "norm": tree["layers"]["norm"],
        "kernel": tree["layers"]["kernel"],
        "bias": tree["bias"],
    }
    params, grads = draw(), [draw() for _ in range(6)]
    progress = np.linspace(0, 1, 7)
    rates = [float(learning_rate(cfg, jnp.float32(p))) for p in progress[:-1]]
    expected = numpy_adamw(
        flat(params), [flat(g) for g in grads], cfg, rates, decayed={"matrix", "kernel"}
    )
    tx = make_optimizer(cfg, None)
    ours = jax.tree.map(jnp.float32, params)
    state = tx.init(ours)
    for step, gradient in enumerate(grads):
        updates, state = tx.update(
            jax.tree.map(jnp.float32, gradient),
            state,
            ours,
            progress=jnp.float32(progress[step]),
            next_progress=jnp.float32(progress[step + 1]),
            key=jax.random.key(0),
        )
        ours = jax.tree.map(jnp.add, ours, updates)
    for name, value in flat(ours).items():
        np.testing.assert_allclose(value, expected[name], rtol=2e-5, atol=2e-6)
