"""T5 against transformers on torch: logits, loss and the gradient of every weight."""

import json
import re

import jax
import numpy as np
import pytest

from models.api import build
from models.config import T5Config
from tests.models.helpers import assert_trees_near
from tests.models.make_references import FOLDER, T5_CASES, by_name, t5_reference

# transformers' names -> ours; `{}` is the layer, matrices are transposed (torch keeps (out, in)).
_MLP = {
    "DenseReluDense.wi.weight": "mlp/wi",
    "DenseReluDense.wi_0.weight": "mlp/wi_gate",
    "DenseReluDense.wi_1.weight": "mlp/wi_up",
    "DenseReluDense.wo.weight": "mlp/wo",
    "layer_norm.weight": "mlp_norm",
}


def _attention(module: str, ours: str) -> dict[str, str]:
    kernels = {"q": "query", "k": "key", "v": "value", "o": "out"}
    return {f"{module}.{k}.weight": f"{ours}/{v}" for k, v in kernels.items()} | {
        "layer_norm.weight": f"{ours}_norm"
    }


_SUBLAYERS = {
    ("encoder", "0"): _attention("SelfAttention", "attention"),
    ("encoder", "1"): _MLP,
    ("decoder", "0"): _attention("SelfAttention", "attention"),
    ("decoder", "1"): _attention("EncDecAttention", "cross_attention"),
    ("decoder", "2"): _MLP,
}


def to_ours(named: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Renames transformers' T5 weights (or their gradients) to our paths and stacks the layers."""
    flat: dict[str, np.ndarray] = {}
    layers: dict[str, dict[int, np.ndarray]] = {}
    for name, array in named.items():
        if name == "shared.weight":
            flat["token_embedding"] = array
        elif name == "lm_head.weight":
            flat["logits"] = array.T
        elif match := re.fullmatch(r"(\w+)\.final_layer_norm\.weight", name):
            flat[f"{match[1]}/final_norm"] = array
        elif match := re.fullmatch(r"(\w+)\.block\.0\..*relative_attention_bias\.weight", name):
            flat[f"{match[1]}/relative_bias"] = array
        else:
            match = re.fullmatch(r"(\w+)\.block\.(\d+)\.layer\.(\d)\.(.*)", name)
            assert match, name
            path = f"{match[1]}/layers/{_SUBLAYERS[match[1], match[3]][match[4]]}"
            layers.setdefault(path, {})[int(match[2])] = array.T
    return flat | {path: np.stack([at[i] for i in range(len(at))]) for path, at in layers.items()}


def nested(flat: dict[str, np.ndarray]) -> dict:
    tree: dict = {}
    for path, array in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = array
    return tree


def config_of(options: dict, **changes) -> T5Config:
    gated = options["feed_forward_proj"] == "gated-gelu"
    return T5Config(
        vocab_size=options["vocab_size"],
        model_dim=options["d_model"],
        mlp_dim=options["d_ff"],
        num_heads=options["num_heads"],
        head_dim=options["d_kv"],
        num_encoder_layers=options["num_layers"],
        num_decoder_layers=options["num_decoder_layers"],
        activation="gelu_tanh" if gated else "relu",
        gated=gated,
        tied_logits=options["tie_word_embeddings"],
        relative_buckets=options["relative_attention_num_buckets"],
        relative_max_distance=options["relative_attention_max_distance"],
        **changes,
    )


def compare(reference) -> None:
    options = json.loads(str(reference["options"]))
    model = build(config_of(options))
    batch = {"inputs": reference["inputs"], "targets": reference["targets"]}
    params = nested(to_ours(by_name(reference, "weights")))
    expected = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.tree.map(np.shape, params) == jax.tree.map(lambda leaf: leaf.shape, expected)

    def mean_loss(params):
        total, count = model.losses(params, batch)["loss"]
        return total / count, model.apply(params, batch)

    (loss, logits), gradients = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(params)
    weighted = reference["targets"] != 0  # elsewhere the logits are nobody's concern
    assert_trees_near(loss, reference["loss"], 1e-5)
    assert_trees_near(logits[weighted], reference["logits"][weighted], 1e-5)
    assert_trees_near(gradients, nested(to_ours(by_name(reference, "gradients"))), 1e-4)


@pytest.mark.parametrize("name", T5_CASES)
def test_equals_recorded_transformers(name):
    with np.load(FOLDER / f"{name}.npz") as reference:
        compare(dict(reference))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize("name", T5_CASES)
def test_equals_live_transformers(name, seed):
    pytest.importorskip("transformers", reason="needs the extra `parity`")
    pytest.importorskip("torch", reason="needs the extra `parity`")
    compare(t5_reference(T5_CASES[name], seed))
