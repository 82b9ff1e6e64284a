"""ViT: the encoder over patches of an image (Dosovitskiy et al. 2021, arXiv 2010.11929)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from models import encoder
from models.config import ViTConfig
from models.encoder import Encoded, Encoder
from models.errors import UserError
from models.flops import matrix_flops
from models.functional import Module, Param
from models.layers import MakeMlp, broadcast_last, dense, dropout, split_key
from models.losses import Sums, token_losses, weighted_sums

# Shape suffixes: B batch, H and W pixels, C channels, T tokens (patches and the class token),
# D width, N classes.

Batch = Mapping[str, jax.Array]


class ViT(Module):
    """Classifier of `images` (B, H, W, C), float32, with `labels` (B,), int32.

    A batch may have `weights` (B,), float32, which the losses are multiplied by. `keep` is as in
    `run_layers`. Initialised as published (vit_jax), but for the classifier, N(0, 0.02) as in
    transformers: zeros would tie all classes, and count as pruned weights.
    """

    def __init__(self, key: jax.Array, cfg: ViTConfig, make_mlp: MakeMlp | None = None):
        patch_key, position_key, encoder_key, classifier_key = jax.random.split(key, 4)
        init = jax.nn.initializers
        normal = init.normal(0.02)
        width, dtype = cfg.model_dim, cfg.param_dtype
        patch_dim = cfg.patch_size**2 * cfg.channels
        self.patch_embedding = Param(init.lecun_normal()(patch_key, (patch_dim, width), dtype))
        self.patch_embedding_bias = Param(jnp.zeros(width, dtype))
        if cfg.pooling == "class_token":
            self.class_token = Param(jnp.zeros(width, dtype))
        self.position_embedding = Param(normal(position_key, (cfg.num_tokens, width), dtype))
        self.encoder = Encoder(encoder_key, cfg, make_mlp, init=init.xavier_uniform())
        self.classifier = Param(normal(classifier_key, (width, cfg.num_classes), dtype))
        self.classifier_bias = Param(jnp.zeros(cfg.num_classes, dtype))
        self.cfg = cfg

    def __call__(
        self, batch: Batch, *, key: jax.Array | None = None, keep: jax.Array | None = None
    ) -> jax.Array:
        """Returns the logits of the classes, float32 (B, N)."""
        pooled_BD = self.encode(batch, key=key, keep=keep).pooled_BD.astype(jnp.float32)
        return dense(pooled_BD, self.classifier[...], self.classifier_bias[...])

    def losses(
        self,
        batch: Batch,
        *,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
        per_example: bool = False,
    ) -> Sums:
        """Returns (sum, count) of `loss`, `nll` and `accuracy` over the images."""
        labels_B = batch["labels"]
        logits_BN = self(batch, key=key, keep=keep)
        values = token_losses(logits_BN, labels_B, label_smoothing=self.cfg.label_smoothing)
        weights_B = batch.get("weights", jnp.ones(labels_B.shape))
        return weighted_sums(values, weights_B, per_example=per_example)

    def encode(
        self, batch: Batch, *, key: jax.Array | None = None, keep: jax.Array | None = None
    ) -> Encoded:
        """Returns the state of every token, and that of the class token or the patches' mean."""
        embedding_key, encoder_key = split_key(key, 2)
        x_BTD = dropout(self.embed(batch["images"]), self.cfg.dropout, embedding_key)
        x_BTD = self.encoder(x_BTD, key=encoder_key, keep=keep)
        is_mean = self.cfg.pooling == "mean"
        return Encoded(x_BTD, jnp.mean(x_BTD, axis=1) if is_mean else x_BTD[:, 0])

    def embed(self, images_BHWC: jax.Array) -> jax.Array:
        """Returns the tokens of images (B, T, D), a class token before all patches.

        Raises UserError for images of another size.
        """
        cfg = self.cfg
        wanted = (cfg.image_size, cfg.image_size, cfg.channels)
        if images_BHWC.shape[1:] != wanted:
            raise UserError(
                f"images of {_times(images_BHWC.shape[1:])}: image_size and channels ask for "
                f"{_times(wanted)}."
            )
        x_BTD = dense(
            patches(images_BHWC.astype(cfg.compute_dtype), cfg.patch_size),
            self.patch_embedding[...],
            self.patch_embedding_bias[...],
        )
        if cfg.pooling == "class_token":
            token_11D = broadcast_last(self.class_token[...].astype(x_BTD.dtype), 3)
            tokens_B1D = jnp.broadcast_to(token_11D, (len(x_BTD), 1, cfg.model_dim))
            x_BTD = jnp.concatenate([tokens_B1D, x_BTD], axis=1)
        return x_BTD + self.position_embedding[...].astype(x_BTD.dtype)[None]


def patches(images_BHWC: jax.Array, size: int) -> jax.Array:
    """Cuts images into patches, both in order of rows, (B, H W / size^2, size size C)."""
    batch, height, width, channels = images_BHWC.shape
    grid = (batch, height // size, size, width // size, size, channels)
    rows = images_BHWC.reshape(grid).transpose(0, 1, 3, 2, 4, 5)
    return rows.reshape(batch, -1, size * size * channels)


def forward_flops(
    cfg: ViTConfig, params: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Returns the FLOPs of every matrix in a forward pass over a batch of these shapes."""
    batch = shapes["images"][0]
    flops = matrix_flops(
        params,
        [
            (r"encoder/layers/.*", batch * cfg.num_tokens),
            (r"patch_embedding", batch * cfg.num_patches),
            (r"classifier", batch),
            (r"position_embedding", 0),
        ],
    )
    return flops | {"attention_scores": encoder.score_flops(cfg, batch, cfg.num_tokens)}


def attention_kernels(cfg: ViTConfig, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Returns which kernel the attention blocks run on this device."""
    del shapes  # the configuration fixes the length
    return encoder.attention_kernels(cfg, cfg.num_tokens)


def _times(sizes: tuple[int, ...]) -> str:
    return "x".join(str(size) for size in sizes)
