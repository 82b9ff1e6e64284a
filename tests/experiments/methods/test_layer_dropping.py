"""Layer dropping: the published schedule, masks by key, and branches that are rescaled."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import registry
from experiments.config import OptimizerConfig
from experiments.methods.layer_dropping import LayerDropping
from experiments.optim import make_optimizer
from experiments.step import init_state, make_train_step
from models.api import build
from models.attention import padding_mask
from models.bert import Bert
from models.config import BertConfig
from models.functional import functional
from models.stack import run_layers

CFG = BertConfig(
    vocab_size=40,
    max_length=8,
    model_dim=8,
    mlp_dim=16,
    num_heads=2,
    num_layers=4,
    pre_norm=True,
)


@pytest.mark.parametrize("progress", [0.0, 0.003, 0.5, 1.0])
def test_keep_probabilities_are_the_published_ones(progress):
    method = LayerDropping(keep_floor=0.5, gamma=100.0)
    found = method.keep_probabilities((16,), jnp.float32(progress))
    theta = 0.5 + 0.5 * math.exp(-100 * progress)
    np.testing.assert_allclose(
        found, [1 - layer / 16 * (1 - theta) for layer in range(1, 17)], rtol=1e-6
    )


def test_expected_layers_at_the_floor():
    """(3L − 1) / 4 of L layers: 11.75 of 16 and 8.75 of 12 in each stack."""
    method = LayerDropping()
    assert float(method.keep_probabilities((16,), jnp.float32(1)).sum()) == pytest.approx(11.75)
    both = method.keep_probabilities((12, 12), jnp.float32(1))
    assert float(both[:12].sum()) == float(both[12:].sum()) == pytest.approx(8.75)


def test_draws_have_these_probabilities_and_rescaled_ones_mean_one():
    method, scaled = LayerDropping(), LayerDropping(rescale=True)
    keys = jax.random.split(jax.random.key(0), 4000)
    runs = jax.vmap(lambda key: method.draw_keep((4,), key, jnp.float32(1)))(keys)
    np.testing.assert_allclose(runs.mean(0), [0.875, 0.75, 0.625, 0.5], atol=0.03)
    assert runs.dtype == jnp.int32 and set(np.unique(runs)) == {0, 1}
    weights = jax.vmap(lambda key: scaled.draw_keep((4,), key, jnp.float32(1)))(keys)
    np.testing.assert_allclose(weights.mean(0), np.ones(4), atol=0.05)


def test_nothing_is_dropped_at_the_start():
    keep = LayerDropping().draw_keep((16,), jax.random.key(3), jnp.float32(0))
    assert keep.tolist() == [1] * 16


def batch_of(rows):
    generator = np.random.default_rng(0)
    return {
        "tokens": generator.integers(3, 40, (rows, 8), dtype=np.int32),
        "masked_positions": np.tile(np.array([1, 4], np.int32), (rows, 1)),
        "masked_labels": generator.integers(3, 40, (rows, 2), dtype=np.int32),
        "masked_weights": np.ones((rows, 2), np.float32),
    }


def drawn_of_an_update(draw_per, microbatches=4):
    """The masks that one update used, one for each of its microbatches."""
    seen = []

    class Recorded(LayerDropping):
        def draw_keep(self, stacks, key, progress):
            keep = super().draw_keep(stacks, key, progress)
            jax.debug.callback(lambda k: seen.append(tuple(k.tolist())), keep)
            return keep

    experiment = dataclasses.replace(registry.resolve("bert_baseline", "demo"), model=CFG)
    model = build(CFG)
    tx = make_optimizer(OptimizerConfig(), None)
    state = init_state(model, tx, seed=5)
    method = Recorded(draw_per=draw_per)
    step = make_train_step(
        model, tx, microbatches=microbatches, losses=method.losses(model, experiment)
    )
    batch = batch_of(2 * microbatches)
    jax.block_until_ready(jax.jit(step)(state, batch, jnp.float32(0.9), jnp.float32(1.0)))
    jax.effects_barrier()
    return seen


@pytest.mark.slow
def test_masks_are_drawn_per_microbatch_or_per_update():
    assert len(set(drawn_of_an_update("microbatch"))) > 1
    shared = drawn_of_an_update("update")
    assert len(shared) >= 4 and len(set(shared)) == 1


def test_dropped_and_rescaled_layers_against_a_loop():
    """Layer l adds keep_l · branch_l to the stream."""
    model = build(CFG)
    params = model.init(jax.random.key(0))
    batch = batch_of(3)
    keep = np.array([1.0, 0.0, 1.6, 2.0], np.float32)

    def one_layer(index):
        return jax.tree.map(lambda leaf: leaf[index : index + 1], params["encoder"]["layers"])

    single = dataclasses.replace(CFG, num_layers=1)
    _, call = functional(lambda key: Bert(key, single))
    # The stream before the final norm, by a model of one layer whose embedding is that stream.
    _, whole = functional(lambda key: Bert(key, CFG))
    x = whole(params, Bert.embed, batch)
    for index in range(4):
        if keep[index] == 0:
            continue
        shallow = params | {"encoder": params["encoder"] | {"layers": one_layer(index)}}

        def run(module, x):
            mask = padding_mask(batch["tokens"])
            return run_layers(
                lambda layer, x, key: layer(x, mask=mask, key=key),
                module.encoder.layers,
                x,
                scan=False,
                remat="none",
            )

        x = x + keep[index] * (call(shallow, run, x) - x)
    expected = whole(params, lambda module, x: module.encoder.final_norm(x), x)
    found = whole(params, Bert.hidden, batch, key=None, keep=jnp.asarray(keep))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_mean_charge_is_that_of_the_schedule():
    """w · first + (1 − w) · last, against the mean of layers over 10,000 steps."""
    method = LayerDropping(gamma=20.0)
    (stage,) = method.stages(registry.resolve("bert_baseline", "demo"))
    calls = {timed.kind: timed.calls_per_step for timed in stage.timed}
    assert sum(calls.values()) == pytest.approx(1)

    def layers(progress):
        return float(method.keep_probabilities((16,), jnp.float32(progress)).sum())

    mean = np.mean([layers(p) for p in (np.arange(2000) + 0.5) / 2000])
    charged = calls["train"] * layers(0.0) + calls["train_last"] * layers(1.0)
    assert charged == pytest.approx(mean, rel=1e-3)


def test_mean_share_of_layers_is_the_schedules_mean():
    method = LayerDropping(gamma=20.0)
    model = dataclasses.replace(CFG, num_layers=16)
    experiment = dataclasses.replace(registry.resolve("bert_baseline", "demo"), model=model)
    at = (np.arange(2000) + 0.5) / 2000
    means = [float(method.keep_probabilities((16,), jnp.float32(p)).mean()) for p in at]
    assert method.mean_share_of_layers(experiment) == pytest.approx(np.mean(means), rel=1e-3)
