"""Writes small reference files of T5 as transformers computes it on torch.

    python tests/models/make_references.py        (needs the extra `parity`)

Each file in `tests/models/references/` holds a randomly initialised model: transformers' own names
and shapes, all weights in that order as one vector, a batch, its logits and mean loss, and the
gradient of that loss with respect to all weights as another vector.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "references"

# Odd sizes everywhere, so that no two axes can be mistaken for each other; sequences longer than
# the greatest distance that the buckets tell apart.
_BASE: dict[str, Any] = {
    "vocab_size": 37,
    "d_model": 7,
    "d_kv": 2,
    "d_ff": 11,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 5,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 11,
}
_GATED = {"feed_forward_proj": "gated-gelu"}
_RELU = {"feed_forward_proj": "relu"}
T5_CASES: dict[str, dict[str, Any]] = {
    "t5_gated_untied": {**_GATED, "tie_word_embeddings": False},
    "t5_gated_tied": {**_GATED, "tie_word_embeddings": True, "d_model": 9},
    "t5_relu_tied": {**_RELU, "tie_word_embeddings": True, "num_layers": 3},
    "t5_relu_untied": {
        **_RELU,
        "tie_word_embeddings": False,
        "num_heads": 1,
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
    },
}


def t5_model(changes: dict[str, Any], seed: int) -> Any:
    """Returns a randomly initialised model of transformers."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    options = t5_options(changes)
    torch.manual_seed(seed)
    config = T5Config(
        **options, decoder_start_token_id=0, attn_implementation="eager", dropout_rate=0.0
    )
    model = T5ForConditionalGeneration(config).eval()
    if not options["tie_word_embeddings"]:
        # transformers 5 ties a new model whatever the option says; a v1.1 checkpoint unties it.
        model.lm_head.weight = torch.nn.Parameter(
            config.d_model**-0.5 * torch.randn(config.vocab_size, config.d_model)
        )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "layer_norm" in name:  # All ones would hide a norm that forgets its scale.
                weight.add_(0.3 * torch.randn_like(weight))
    return model


def t5_options(changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a case, as transformers calls them."""
    return _BASE | changes


def t5_reference(changes: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Returns the arrays of one reference file, computed by transformers."""
    import torch

    options, model = t5_options(changes), t5_model(changes, seed)
    rng = np.random.default_rng(seed)
    inputs = padded(rng, options["vocab_size"], lengths=(17, 5, 11))
    targets = padded(rng, options["vocab_size"], lengths=(2, 13, 7))
    labels = torch.from_numpy(np.where(targets == 0, -100, targets)).long()
    outputs = model(
        input_ids=torch.from_numpy(inputs).long(),
        attention_mask=torch.from_numpy(inputs != 0).long(),
        labels=labels,
    )
    outputs.loss.backward()
    return {
        **model_arrays(options, model),
        "gradients": np.concatenate([w.grad.numpy().ravel() for w in model.parameters()]),
        "inputs": inputs,
        "targets": targets,
        "logits": outputs.logits.detach().numpy(),
        "loss": outputs.loss.detach().numpy(),
    }


def model_arrays(options: dict[str, Any], model: Any) -> dict[str, np.ndarray]:
    """Returns the arrays that say what a model is."""
    weights = dict(model.named_parameters())
    return {
        "options": np.array(json.dumps(options)),
        "shapes": np.array(json.dumps({name: list(w.shape) for name, w in weights.items()})),
        "weights": np.concatenate([w.detach().numpy().ravel() for w in weights.values()]),
    }


def by_name(reference: Mapping[str, np.ndarray], vector: str) -> dict[str, np.ndarray]:
    """Cuts one of the vectors of a reference (`weights`, `gradients`) into named arrays."""
    shapes = json.loads(str(reference["shapes"]))
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(reference[vector], ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


def padded(rng: np.random.Generator, vocab_size: int, lengths: tuple[int, ...]) -> np.ndarray:
    """Returns int32 rows of random tokens of these lengths, padded with 0 to the longest."""
    tokens = rng.integers(1, vocab_size, (len(lengths), max(lengths)), dtype=np.int32)
    return np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], tokens, 0).astype("int32")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for seed, (name, changes) in enumerate(T5_CASES.items()):
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, **t5_reference(changes, seed))
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
