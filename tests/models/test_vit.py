"""ViT: patches, pooling and what is summed."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from models.api import build, build_encoder
from models.errors import UserError
from models.vit import patches
from tests.models.encoder_cases import VIT, vit_batch
from tests.models.helpers import assert_trees_near, random_params

MEAN = replace(VIT, pooling="mean")


def test_patches_follow_rows():
    images = np.random.default_rng(0).random((2, 4, 6, 3), dtype=np.float32)
    ours = patches(images, 2)
    assert ours.shape == (2, 6, 12)
    for n in range(6):
        top, left = 2 * (n // 3), 2 * (n % 3)
        values = [
            images[:, top + y, left + x, c] for y in range(2) for x in range(2) for c in range(3)
        ]
        np.testing.assert_array_equal(ours[:, n], np.stack(values, axis=1))


def test_mean_pooling_classifies_the_mean_of_all_patches():
    model, encode, batch = build(MEAN), build_encoder(MEAN), vit_batch()
    params = random_params(model)
    assert "class_token" not in params and params["position_embedding"].shape == (9, 8)
    logits, encoded = jax.jit(lambda p: (model.apply(p, batch), encode(p, batch)))(params)
    pooled = np.asarray(encoded.hidden_BTD).mean(axis=1)
    assert_trees_near(encoded.pooled_BD, pooled, 1e-6)
    assert_trees_near(logits, pooled @ params["classifier"] + params["classifier_bias"], 1e-5)


def test_losses_are_smoothed_and_weighted():
    model, batch = build(VIT), vit_batch()
    params = random_params(model)
    logits, sums, each = jax.jit(
        lambda p: (
            model.apply(p, batch),
            model.losses(p, batch),
            model.losses(p, batch, per_example=True),
        )
    )(params)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -log_p[np.arange(3), batch["labels"]]
    loss = 0.9 * nll - 0.1 * log_p.mean(-1)
    np.testing.assert_allclose(sums["loss"], [loss[:2].sum(), 2], rtol=1e-5)
    np.testing.assert_allclose(sums["nll"], [nll[:2].sum(), 2], rtol=1e-5)
    np.testing.assert_allclose(each["loss"][0], [*loss[:2], 0], rtol=1e-5)
    np.testing.assert_array_equal(each["loss"][1], [1, 1, 0])
    right = (logits.argmax(-1) == batch["labels"])[:2].sum()
    np.testing.assert_array_equal(sums["accuracy"], [right, 2])


@pytest.mark.parametrize("shape", [(1, 6, 5, 3), (1, 8, 8, 3), (1, 6, 6, 1)])
def test_images_of_another_size(shape):
    model = build(VIT)
    given = "x".join(map(str, shape[1:]))
    with pytest.raises(
        UserError, match=f"images of {given}: image_size and channels ask for 6x6x3"
    ):
        jax.eval_shape(model.apply, random_params(model), {"images": np.zeros(shape, np.float32)})
