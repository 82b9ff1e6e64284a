"""Losses against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.losses import token_losses, weighted_sums

RNG = np.random.default_rng(0)
LOGITS = (3 * RNG.standard_normal((2, 4, 9))).astype(np.float32)
LABELS = RNG.integers(0, 9, (2, 4)).astype(np.int32)


def expected(logits, label, z_loss, label_smoothing):
    logits = logits.astype(np.float64)
    log_z = np.log(np.exp(logits).sum())
    target = (1 - label_smoothing) * np.eye(9)[label] + label_smoothing / 9
    return log_z - logits[label], -(target * (logits - log_z)).sum() + z_loss * log_z**2


@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_loss_and_nll(z_loss, label_smoothing):
    options = {"z_loss": z_loss, "label_smoothing": label_smoothing}
    ours = token_losses(LOGITS, LABELS, **options)
    for i in np.ndindex(2, 4):
        nll, loss = expected(LOGITS[i], LABELS[i], **options)
        np.testing.assert_allclose(ours["nll"][i], nll, rtol=1e-5)
        np.testing.assert_allclose(ours["loss"][i], loss, rtol=1e-5)


def test_gradient_of_smoothed_loss_with_z_loss():
    z_loss, smoothing = 1e-2, 0.1
    ours = jax.grad(
        lambda logits: token_losses(logits, LABELS, z_loss=z_loss, label_smoothing=smoothing)[
            "loss"
        ].sum()
    )(LOGITS)
    log_z = np.log(np.exp(LOGITS.astype(np.float64)).sum(-1, keepdims=True))
    target = (1 - smoothing) * np.eye(9)[LABELS] + smoothing / 9
    closed_form = np.exp(LOGITS - log_z) * (1 + 2 * z_loss * log_z) - target
    np.testing.assert_allclose(ours, closed_form, rtol=1e-4, atol=1e-6)


def test_losses_are_float32_and_do_not_overflow():
    ours = token_losses(
        np.full((1, 4), 200, np.float16), np.zeros(1, np.int32)
    )  # exp(200) is not finite
    assert ours["loss"].dtype == np.float32
    np.testing.assert_allclose(ours["loss"], np.log(4), rtol=1e-4)


def test_accuracy():
    logits = np.array([[0.0, 2.0, 1.0], [0.0, 2.0, 1.0]], np.float32)
    ours = token_losses(logits, np.array([1, 2], np.int32))
    np.testing.assert_array_equal(ours["accuracy"], [1, 0])


def test_sums_and_counts_ignore_what_has_no_weight():
    values = np.array([[1.0, 2.0, np.inf], [4.0, np.nan, 6.0]], np.float32)
    weights = np.array([[1.0, 0.5, 0.0], [1.0, 0.0, 1.0]], np.float32)
    total, count = weighted_sums({"a": jnp.asarray(values)}, weights)["a"]
    assert (total, count) == (12.0, 3.5)
    totals, counts = weighted_sums({"a": jnp.asarray(values)}, weights, per_example=True)["a"]
    np.testing.assert_array_equal(totals, [2.0, 10.0])
    np.testing.assert_array_equal(counts, [1.5, 2.0])
