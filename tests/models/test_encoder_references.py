"""BERT and ViT against transformers on torch: outputs, loss and the gradient of every weight."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.api import build, build_encoder
from models.config import ModelConfig
from tests.models.helpers import assert_trees_near
from tests.models.hugging_face_cases import load_reference
from tests.models.make_encoder_references import CASES, encoder_reference
from tests.models.make_references import FOLDER


def predictions(cfg: ModelConfig, reference: dict[str, np.ndarray]):
    """Returns (params) -> (the loss of the reference, the outputs that it holds)."""
    arrays = ("tokens", "token_types", "masked_positions", "masked_labels", "masked_weights")
    batch = {k: v for k, v in reference.items() if k in (*arrays, "images", "labels")}
    model, encode = build(cfg), build_encoder(cfg)

    def of_model(params):
        total, count = model.losses(params, batch)["loss"]
        everywhere = {k: v for k, v in batch.items() if k != "masked_positions"}
        return total / count, {"logits": model.apply(params, everywhere)}

    def of_encoder(params):
        hidden_BTD, pooled_BD = encode(params, batch)
        loss = jnp.sum((pooled_BD + hidden_BTD[:, 2]) * reference["towards"])
        return loss, {"hidden": hidden_BTD, "pooled": pooled_BD}

    return of_encoder if "towards" in reference else of_model


def compare(name: str, reference: dict[str, np.ndarray], folder: Path) -> None:
    cfg, params = load_reference(name, reference, "weights", folder)
    evaluate = jax.jit(jax.value_and_grad(predictions(cfg, reference), has_aux=True))
    (loss, outputs), gradients = evaluate(params)
    np.testing.assert_allclose(loss, reference["loss"], rtol=1e-5)
    assert_trees_near(outputs, {name: reference[name] for name in outputs}, 1e-5)

    _, theirs = load_reference(name, reference, "gradients", folder)
    # A softmax does not see what is added to all keys, so that their gradients are but rounding.
    attention = gradients["encoder"]["layers"]["attention"]
    assert np.abs(attention.pop("key_bias")).max() < 1e-6 * np.abs(attention["key"]).max()
    theirs["encoder"]["layers"]["attention"].pop("key_bias")
    assert all(np.any(gradient) for gradient in jax.tree.leaves(theirs))
    assert_trees_near(gradients, theirs, 1e-4)


@pytest.mark.parametrize("name", CASES)
def test_equals_recorded_transformers(name, tmp_path):
    with np.load(FOLDER / f"{name}.npz") as reference:
        compare(name, dict(reference), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize("name", CASES)
def test_equals_live_transformers(name, seed, tmp_path):
    pytest.importorskip("transformers", reason="needs the extra `parity`")
    pytest.importorskip("torch", reason="needs the extra `parity`")
    compare(name, encoder_reference(name, seed), tmp_path)
