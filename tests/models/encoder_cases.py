"""Small BERTs and ViTs with sizes that no two axes share, and batches for them."""

from dataclasses import replace

import numpy as np

from models.config import BertConfig, ViTConfig
from tests.models.helpers import random_tokens

BERT = BertConfig(
    vocab_size=23,
    max_length=13,
    model_dim=6,
    mlp_dim=7,
    num_heads=2,
    num_layers=3,
    num_token_types=3,
)
CRAMMED = replace(
    BERT,
    gated=True,
    use_bias=False,
    pre_norm=True,
    positions="scaled_sinusoidal",
    num_token_types=None,
    pooler=False,
    mlm_head="linear",
)
# The crammed form that leaves most away.
BARE = replace(CRAMMED, gated=False, positions="learned", mlm_head="none")
VIT = ViTConfig(
    image_size=6,
    patch_size=2,
    channels=3,
    num_classes=5,
    model_dim=8,
    mlp_dim=7,
    num_heads=2,
    num_layers=3,
    label_smoothing=0.1,
)


def bert_batch() -> dict[str, np.ndarray]:
    """Two sequences of 11 and 7 tokens with four masked positions, one of which weighs nothing."""
    rng = np.random.default_rng(0)
    return {
        "tokens": random_tokens((11, 7), 23),
        "token_types": rng.integers(0, 3, (2, 11), dtype=np.int32),
        "masked_positions": np.array([[9, 1, 4, 2], [3, 6, 5, 0]], np.int32),
        "masked_labels": rng.integers(1, 23, (2, 4), dtype=np.int32),
        "masked_weights": np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.float32),
    }


def vit_batch() -> dict[str, np.ndarray]:
    """Three images, the last of which weighs nothing."""
    rng = np.random.default_rng(0)
    return {
        "images": rng.standard_normal((3, 6, 6, 3), dtype=np.float32),
        "labels": np.array([4, 0, 2], np.int32),
        "weights": np.array([1, 1, 0], np.float32),
    }


CASES = {
    "bert": (BERT, bert_batch()),
    "crammed": (CRAMMED, bert_batch()),
    "vit": (VIT, vit_batch()),
}
