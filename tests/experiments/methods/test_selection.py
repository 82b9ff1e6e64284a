"""Selective backprop and RHO against loops in NumPy: who is accepted, pooled and trained on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.methods.select import (
    example_losses,
    init_selection,
    percentiles,
    select_by_percentile,
    select_highest,
)
from models.api import build
from models.config import BertConfig


def batch_of(ids):
    return {"id": jnp.asarray(ids, jnp.int32), "tokens": jnp.asarray(ids, jnp.int32)[:, None] * 10}


def percentile_loop(history, loss):
    return sum(seen <= loss for seen in history) / len(history)


def test_percentile_is_the_share_of_losses_not_above():
    generator = np.random.default_rng(0)
    history = generator.normal(size=20).astype(np.float32)
    losses = np.concatenate([history[:3], generator.normal(size=4)]).astype(np.float32)
    found = percentiles(jnp.asarray(history), jnp.int32(12), jnp.asarray(losses))
    expected = [percentile_loop(history[:12], loss) for loss in losses]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def oracle(rounds, history_size, pool_size, count, beta, keys):
    """The same selection, one example at a time; yields the ids of each batch."""
    history, pool = [], []
    for (ids, losses), key in zip(rounds, keys, strict=True):
        history = (history + list(losses))[-history_size:]
        chances = [percentile_loop(history, loss) ** beta for loss in losses]
        drawn = np.asarray(jax.random.uniform(key, (len(ids),)))
        accepted = [i for i, u, p in zip(ids, drawn, chances, strict=True) if u < p]
        others = [
            i
            for _, i in sorted(
                ((-p, i) for i, u, p in zip(ids, drawn, chances, strict=True) if u >= p)
            )
        ]
        waiting = pool + accepted
        yield (waiting + others)[:count]
        pool = waiting[count:][-pool_size:] if len(waiting) > count else []


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_selection_is_that_of_a_loop(beta):
    generator = np.random.default_rng(1)
    candidates, count, pool_size, history_size = 12, 5, 6, 30
    state = init_selection(
        jax.eval_shape(lambda: batch_of(range(candidates))), history_size, pool_size
    )
    rounds, keys, found = [], [], []
    select = jax.jit(select_by_percentile, static_argnums=(3, 4))
    for number in range(7):
        ids = list(range(100 * number, 100 * number + candidates))
        losses = generator.normal(size=candidates).astype(np.float32)
        key = jax.random.key(number)
        state, chosen = select(state, batch_of(ids), jnp.asarray(losses), count, beta, key)
        # Whole examples travel together.
        np.testing.assert_array_equal(chosen["tokens"][:, 0], chosen["id"] * 10)
        rounds.append((ids, losses))
        keys.append(key)
        found.append(chosen["id"].tolist())
    expected = list(oracle(rounds, history_size, pool_size, count, beta, keys))
    assert found == expected


def test_pool_carries_examples_over_and_forgets_the_oldest():
    state = init_selection(jax.eval_shape(lambda: batch_of(range(8))), 8, 2)
    # Equal losses have percentile 1: all are accepted.
    select = jax.jit(select_by_percentile, static_argnums=(3, 4))
    state, first = select(state, batch_of(range(8)), jnp.ones(8), 3, 1.0, jax.random.key(0))
    assert first["id"].tolist() == [0, 1, 2] and int(state["pooled"]) == 2
    _, second = select(state, batch_of(range(8, 16)), jnp.ones(8), 3, 1.0, jax.random.key(0))
    assert second["id"].tolist() == [6, 7, 8]


def test_rho_takes_the_highest_reducible_losses():
    losses = np.array([3.0, 1.0, 5.0, 4.0], np.float32)
    irreducible = np.array([0.5, 0.9, 4.9, 1.0], np.float32)
    chosen = select_highest(batch_of(range(4)), jnp.asarray(losses - irreducible), 2)
    order = sorted(range(4), key=lambda i: irreducible[i] - losses[i])
    assert chosen["id"].tolist() == order[:2] == [3, 0]


def test_example_losses_are_means_over_masked_positions_however_cut():
    cfg = BertConfig(
        vocab_size=40, max_length=8, model_dim=8, mlp_dim=16, num_heads=2, num_layers=2
    )
    model = build(cfg)
    state = {"params": model.init(jax.random.key(0))}
    generator = np.random.default_rng(0)
    batch = {
        "tokens": generator.integers(3, 40, (6, 8), dtype=np.int32),
        "masked_positions": np.sort(generator.integers(0, 8, (6, 3), dtype=np.int32), axis=1),
        "masked_labels": generator.integers(3, 40, (6, 3), dtype=np.int32),
        "masked_weights": np.ones((6, 3), np.float32),
    }
    batch["masked_weights"][2, 1:] = 0
    logits = np.asarray(model.apply(state["params"], batch), np.float64)
    assert logits.shape == (6, 3, 40)  # nowhere else are logits computed
    expected = []
    for row in range(6):
        nll = [
            np.log(np.exp(logits[row, p]).sum()) - logits[row, p, batch["masked_labels"][row, p]]
            for p in range(3)
            if batch["masked_weights"][row, p]
        ]
        expected.append(np.mean(nll))
    for parts in (1, 3):
        np.testing.assert_allclose(example_losses(model, state, batch, parts), expected, rtol=1e-5)
