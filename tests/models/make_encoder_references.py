"""Writes small reference files of BERT and ViT as transformers computes them on torch.

    python -m tests.models.make_encoder_references        (needs the extra `parity`)

Each file in `tests/models/references/` holds a randomly initialised model: transformers' own names
and shapes, all weights in that order as one vector, a batch, what the model makes of it, and the
gradient of its loss with respect to all weights as another vector.
"""

import json
from typing import Any

import numpy as np

from tests.models.make_references import FOLDER

# Odd sizes everywhere, so that no two axes can be mistaken for each other.
_BERT: dict[str, Any] = {
    "vocab_size": 37,
    "hidden_size": 15,
    "intermediate_size": 11,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "max_position_embeddings": 19,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}
_VIT: dict[str, Any] = {
    "image_size": 9,
    "patch_size": 3,
    "num_channels": 2,
    "num_labels": 7,
    "hidden_size": 15,
    "intermediate_size": 11,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "hidden_act": "gelu",
}
# Name of a file -> options of its configuration; the name says which of transformers' models it is.
CASES: dict[str, dict[str, Any]] = {
    "bert_mlm": _BERT,
    "bert_mlm_tanh": _BERT
    | {
        "hidden_act": "gelu_new",
        "num_attention_heads": 1,
        "type_vocab_size": 3,
        "layer_norm_eps": 1e-5,
    },
    "bert_pooler": _BERT | {"num_hidden_layers": 3, "hidden_act": "relu"},
    "vit": _VIT,
    "vit_tanh": _VIT
    | {
        "hidden_act": "gelu_new",
        "num_channels": 1,
        "image_size": 10,
        "patch_size": 5,
        "layer_norm_eps": 1e-5,
    },
}
# Applied to every case: greater than the usual 0.02, so that no gradient is lost in rounding.
_COMMON: dict[str, Any] = {"initializer_range": 0.3, "attn_implementation": "eager"}


def encoder_reference(name: str, seed: int) -> dict[str, np.ndarray]:
    """Returns the arrays of one reference file, computed by transformers."""
    import torch

    options = CASES[name]
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    if name.startswith("vit"):
        model, arrays = _vit(options, rng)
    elif name == "bert_pooler":
        model, arrays = _bert_pooler(options, rng)
    else:
        model, arrays = _bert_mlm(options, rng)
    arrays.pop("loss_tensor").backward()
    weights = dict(model.named_parameters())
    return arrays | {
        "options": np.array(json.dumps(options)),
        "shapes": np.array(json.dumps({name: list(w.shape) for name, w in weights.items()})),
        "weights": np.concatenate([w.detach().numpy().ravel() for w in weights.values()]),
        "gradients": np.concatenate([w.grad.numpy().ravel() for w in weights.values()]),
    }


def _bert_mlm(options, rng):
    import torch
    from transformers import BertConfig, BertForMaskedLM

    model = _roughened(BertForMaskedLM(BertConfig(**options, **_COMMON)))
    batch = _text(options, rng)
    # Three rows of predictions, the last of which has fewer, so that some carry no weight.
    positions = np.array([[4, 0, 9, 2], [3, 1, 4, 0], [6, 2, 0, 0]], np.int32)
    weights = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]], np.float32)
    labels = rng.integers(1, options["vocab_size"], positions.shape, dtype=np.int32)
    dense_labels = np.full(batch["tokens"].shape, -100)
    rows, columns = np.nonzero(weights)
    dense_labels[rows, positions[rows, columns]] = labels[rows, columns]
    outputs = model(**_torch(batch), labels=torch.from_numpy(dense_labels))
    return model, batch | {
        "masked_positions": positions,
        "masked_labels": labels,
        "masked_weights": weights,
        "logits": outputs.logits.detach().numpy(),
        "loss": outputs.loss.detach().numpy(),
        "loss_tensor": outputs.loss,
    }


def _bert_pooler(options, rng):
    import torch
    from transformers import BertConfig, BertModel

    model = _roughened(BertModel(BertConfig(**options, **_COMMON)))
    batch = _text(options, rng)
    outputs = model(**_torch(batch))
    hidden, pooled = outputs.last_hidden_state, outputs.pooler_output
    towards = rng.standard_normal(pooled.shape, dtype=np.float32)
    # A loss that reaches every weight: pooled output and one token's state in a given direction.
    loss = torch.sum((pooled + hidden[:, 2]) * torch.from_numpy(towards))
    return model, batch | {
        "towards": towards,
        "hidden": hidden.detach().numpy(),
        "pooled": pooled.detach().numpy(),
        "loss": loss.detach().numpy(),
        "loss_tensor": loss,
    }


def _vit(options, rng):
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    model = _roughened(ViTForImageClassification(ViTConfig(**options, **_COMMON)))
    size, channels = options["image_size"], options["num_channels"]
    images = rng.standard_normal((3, size, size, channels), dtype=np.float32)
    labels = rng.integers(0, options["num_labels"], 3, dtype=np.int32)
    outputs = model(
        pixel_values=torch.from_numpy(images).permute(0, 3, 1, 2),
        labels=torch.from_numpy(labels).long(),
    )
    return model, {
        "images": images,
        "labels": labels,
        "logits": outputs.logits.detach().numpy(),
        "loss": outputs.loss.detach().numpy(),
        "loss_tensor": outputs.loss,
    }


def _roughened(model):
    """Moves vectors away from all ones and all zeros, which would hide one that is forgotten."""
    import torch

    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.eval()


def _text(options, rng):
    lengths = np.array([[11], [5], [8]])
    shape = (3, 11)
    tokens = rng.integers(1, options["vocab_size"], shape, dtype=np.int32)
    return {
        "tokens": np.where(np.arange(11) < lengths, tokens, 0).astype(np.int32),
        "token_types": rng.integers(0, options["type_vocab_size"], shape, dtype=np.int32),
    }


def _torch(batch):
    import torch

    return {
        "input_ids": torch.from_numpy(batch["tokens"]).long(),
        "attention_mask": torch.from_numpy(batch["tokens"] != 0).long(),
        "token_type_ids": torch.from_numpy(batch["token_types"]).long(),
    }


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for seed, name in enumerate(CASES):
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, **encoder_reference(name, seed))
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
