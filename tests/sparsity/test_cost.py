"""FLOPs and bytes, against the closed forms."""

import jax
import numpy as np
import pytest

from sparsity.config import PruningConfig
from sparsity.cost import (
    flops_zeros_computed,
    flops_zeros_skipped,
    mean_density,
    parameter_bytes,
)

FORWARD = {"encoder/w": 600.0, "token_embedding": 0.0, "attention_scores": 40.0}


def progress(steps: int) -> np.ndarray:
    return np.arange(steps + 1) / steps


def cubic(**fields) -> PruningConfig:
    return PruningConfig(**({"rule": "magnitude", "sparsity": 0.75} | fields))


@pytest.mark.parametrize(
    ("sparsity", "ideal", "none"),
    [(0.25, 1.125, 1.333), (0.5, 1.375, 2.0), (0.75, 2.125, 4.0), (0.875, 3.625, 8.0)],
)
def test_cubic_multiples_of_a_dense_network_of_as_many_nonzeros(sparsity, ideal, none):
    ours = mean_density(cubic(sparsity=sparsity), sparsity) / (1 - sparsity)
    np.testing.assert_allclose(ours, 0.375 / (1 - sparsity) + 0.625, rtol=1e-14)
    np.testing.assert_allclose(ours, ideal, rtol=1e-14)
    np.testing.assert_allclose(1 / (1 - sparsity), none, rtol=3e-4)


def test_zeros_computed_is_three_forward_passes_a_step():
    flops = flops_zeros_computed(FORWARD, 10)
    assert (flops.training, flops.inference) == (10 * 3 * 640.0, 640.0)


def test_zeros_skipped_tends_to_the_closed_form():
    steps = 20_000
    cfg = cubic(update_every_steps=1)
    flops = flops_zeros_skipped(cfg, FORWARD, {"encoder/w": 0.75}, progress(steps))
    expected = 3 * steps * (600 * mean_density(cfg, 0.75) + 40)
    np.testing.assert_allclose(flops.training, expected, rtol=1e-4)
    assert flops.inference == 600 * 0.25 + 40


def test_masks_chosen_seldom_cost_more_than_the_closed_form():
    # Choices at 25 %, 50 % and 75 % of 8 steps: densities by hand.
    cfg = cubic(update_every_steps=4)
    share = np.asarray([0, 0, 0, 0, 1 - (1 - 0.75) ** 3, 1, 1, 1])
    share[4] = 1 - (1 - (0.625 - 0.25) / 0.5) ** 3
    flops = flops_zeros_skipped(cfg, {"w": 1.0}, {"w": 0.75}, progress(8))
    np.testing.assert_allclose(flops.training, 3 * (1 - 0.75 * share).sum(), rtol=1e-6)


def test_dense_gradients_are_charged_where_a_rule_needs_them():
    steps, flat = 1000, {"sparsity": 0.5, "update_every_steps": 50, "schedule": "constant"}
    static = PruningConfig(rule="static", **flat)
    rigl = PruningConfig(rule="rigl", **flat)
    base = flops_zeros_skipped(static, {"w": 1.0}, {"w": 0.5}, progress(steps)).training
    assert base == 3 * 0.5 * steps
    more = flops_zeros_skipped(rigl, {"w": 1.0}, {"w": 0.5}, progress(steps)).training - base
    # Choices at step 249, at 250, 300, … 700, and at step 749.
    assert more == 12 * 0.5
    ste = PruningConfig(rule="magnitude_ste", sparsity=0.5, update_every_steps=1)
    hard = PruningConfig(rule="magnitude", sparsity=0.5, update_every_steps=1)
    left, right = (
        flops_zeros_skipped(cfg, {"w": 1.0}, {"w": 0.5}, progress(20_000)).training / 20_000
        for cfg in (ste, hard)
    )
    # Weight gradients stay dense through the window, whose mean share is 3/4.
    np.testing.assert_allclose(left - right, 0.5 * 0.5 * 0.75, rtol=1e-3)


def test_skipping_nothing_is_computing_everything():
    cfg = cubic(sparsity=0.0)
    skipped = flops_zeros_skipped(cfg, FORWARD, {"encoder/w": 0.0}, progress(50))
    assert skipped == flops_zeros_computed(FORWARD, 50)


def test_bytes_of_each_form():
    shapes = {"w": (8, 12), "layers": {"v": (3, 4, 16)}, "bias": (12,)}
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, np.float32), shapes, is_leaf=lambda s: type(s) is tuple
    )
    cfg = cubic(pattern="2:4", sparsity=0.5)
    size = parameter_bytes(cfg, params, {"w": 48, "layers/v": 96})
    assert size.dense == 4 * (96 + 192 + 12)
    assert size.bitmask == 4 * (48 + 96 + 12) + 96 // 8 + 192 // 8
    assert size.csr == 4 * (48 + 96 + 12) + 4 * (48 + 96) + 4 * (9 + 3 * 5)
    # Two bits for each kept value.
    assert size.nm == 4 * (48 + 96 + 12) + (48 + 96) * 2 // 8
    assert parameter_bytes(cubic(sparsity=0.5), params, {"w": 48, "layers/v": 96}).nm is None
    assert parameter_bytes(PruningConfig(), params, {}).bitmask == size.dense
