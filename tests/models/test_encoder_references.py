"""BERT and ViT against transformers on torch: outputs, loss and the gradient of every weight."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from models.api import build, build_encoder
from models.config import BertConfig, ViTConfig
from tests.models.helpers import assert_trees_near
from tests.models.make_encoder_references import CASES, encoder_reference
from tests.models.make_references import FOLDER, by_name

# transformers' modules -> ours, without the prefix `bert.` or `vit.`; `*` is the number of a layer.
_MODULES = {
    "embeddings.word_embeddings": "token_embedding",
    "embeddings.position_embeddings": "position_embedding",
    "embeddings.token_type_embeddings": "token_type_embedding",
    "embeddings.LayerNorm": "embedding_norm",
    "encoder.layer.*.attention.self.query": "encoder/layers/attention/query",
    "encoder.layer.*.attention.self.key": "encoder/layers/attention/key",
    "encoder.layer.*.attention.self.value": "encoder/layers/attention/value",
    "encoder.layer.*.attention.output.dense": "encoder/layers/attention/out",
    "encoder.layer.*.attention.output.LayerNorm": "encoder/layers/attention_norm",
    "encoder.layer.*.intermediate.dense": "encoder/layers/mlp/wi",
    "encoder.layer.*.output.dense": "encoder/layers/mlp/wo",
    "encoder.layer.*.output.LayerNorm": "encoder/layers/mlp_norm",
    "pooler.dense": "pooler",
    "cls.predictions.transform.dense": "head",
    "cls.predictions.transform.LayerNorm": "head_norm",
    "cls.predictions": "logits",
    "embeddings.patch_embeddings.projection": "patch_embedding",
    "layers.*.attention.q_proj": "encoder/layers/attention/query",
    "layers.*.attention.k_proj": "encoder/layers/attention/key",
    "layers.*.attention.v_proj": "encoder/layers/attention/value",
    "layers.*.attention.o_proj": "encoder/layers/attention/out",
    "layers.*.layernorm_before": "encoder/layers/attention_norm",
    "layers.*.layernorm_after": "encoder/layers/mlp_norm",
    "layers.*.mlp.fc1": "encoder/layers/mlp/wi",
    "layers.*.mlp.fc2": "encoder/layers/mlp/wo",
    "layernorm": "encoder/final_norm",
    "classifier": "classifier",
}


def to_ours(named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Renames transformers' weights (or their gradients) to our paths and stacks the layers."""
    flat: dict[str, np.ndarray] = {}
    layers: dict[str, list[np.ndarray]] = {}
    for name, array in named.items():
        name = re.sub(r"^(bert|vit)\.", "", name)
        if name == "embeddings.cls_token":
            flat["class_token"] = array.reshape(-1)
        elif name == "embeddings.position_embeddings":
            flat["position_embedding"] = array[0]
        else:
            module, _, kind = name.rpartition(".")
            path = _MODULES[re.sub(r"\.\d+\.", ".*.", module)]
            if path.endswith("_norm"):
                path += "/scale" if kind == "weight" else "/bias"
            elif kind == "bias":
                path += "_bias"
            elif array.ndim == 4:  # a convolution's (out, channels, rows, columns)
                array = array.transpose(2, 3, 1, 0).reshape(-1, len(array))
            elif not path.endswith("embedding"):
                array = array.T
            if "/layers/" in path:
                layers.setdefault(path, []).append(array)
            else:
                flat[path] = array
    return flat | {path: np.stack(arrays) for path, arrays in layers.items()}


def config_of(name: str, options: dict) -> BertConfig | ViTConfig:
    activation = {"gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu"}[options["hidden_act"]]
    shared = {
        "model_dim": options["hidden_size"],
        "mlp_dim": options["intermediate_size"],
        "num_heads": options["num_attention_heads"],
        "num_layers": options["num_hidden_layers"],
        "norm_epsilon": options.get("layer_norm_eps", 1e-12),
        "activation": activation,
    }
    if name.startswith("vit"):
        return ViTConfig(
            **shared,
            image_size=options["image_size"],
            patch_size=options["patch_size"],
            channels=options["num_channels"],
            num_classes=options["num_labels"],
        )
    return BertConfig(
        **shared,
        vocab_size=options["vocab_size"],
        max_length=options["max_position_embeddings"],
        num_token_types=options["type_vocab_size"],
        pooler=name == "bert_pooler",
        # BertModel has no head. Ours then projects with the embedding table alone.
        mlm_head="none" if name == "bert_pooler" else "transform",
    )


def predictions(cfg: BertConfig | ViTConfig, reference: dict[str, np.ndarray]):
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


def compare(name: str, reference: dict[str, np.ndarray]) -> None:
    cfg = config_of(name, json.loads(str(reference["options"])))
    params = unflatten_dict(to_ours(by_name(reference, "weights")), sep="/")
    expected = jax.eval_shape(build(cfg).init, jax.random.key(0))
    assert jax.tree.map(np.shape, params) == jax.tree.map(np.shape, expected)
    evaluate = jax.jit(jax.value_and_grad(predictions(cfg, reference), has_aux=True))
    (loss, outputs), gradients = evaluate(params)
    np.testing.assert_allclose(loss, reference["loss"], rtol=1e-5)
    assert_trees_near(outputs, {name: reference[name] for name in outputs}, 1e-5)

    theirs = unflatten_dict(to_ours(by_name(reference, "gradients")), sep="/")
    # A softmax does not see what is added to all keys, so that their gradients are but rounding.
    attention = gradients["encoder"]["layers"]["attention"]
    assert np.abs(attention.pop("key_bias")).max() < 1e-6 * np.abs(attention["key"]).max()
    theirs["encoder"]["layers"]["attention"].pop("key_bias")
    assert all(np.any(gradient) for gradient in jax.tree.leaves(theirs))
    assert_trees_near(gradients, theirs, 1e-4)


@pytest.mark.parametrize("name", CASES)
def test_equals_recorded_transformers(name):
    with np.load(FOLDER / f"{name}.npz") as reference:
        compare(name, dict(reference))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize("name", CASES)
def test_equals_live_transformers(name, seed):
    pytest.importorskip("transformers", reason="needs the extra `parity`")
    pytest.importorskip("torch", reason="needs the extra `parity`")
    compare(name, encoder_reference(name, seed))
