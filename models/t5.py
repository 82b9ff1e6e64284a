"""T5, v1.1 and v1.0 by configuration (Raffel et al. 2020, arXiv 1910.10683)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from models.attention import choose_kernel, padding_mask, segment_mask
from models.config import T5Config
from models.flops import attention_flops, matrix_flops
from models.functional import Module, Param, stack
from models.layers import MakeMlp, dropout, rms_norm, split_key
from models.losses import Sums, token_losses, weighted_sums
from models.mesh import constrain
from models.relative import relative_bias
from models.stack import run_layers
from models.t5_layers import DecoderLayer, EncoderLayer, normal, t5_mlp

# Shape suffixes: B batch, S input tokens, T target tokens, D width, V vocabulary, L layers.

Batch = Mapping[str, jax.Array]


class T5(Module):
    """Encoder-decoder over `inputs` (B, S) and `targets` (B, T), int32 with padding id 0.

    Packed batches also have `inputs_segment_ids` and `targets_segment_ids`, counted from 1 with 0
    for padding. `keep` (layers of the encoder, then of the decoder) is as in `run_layers`.
    Initialised as published (Mesh TensorFlow): attention logits are not scaled by the width of a
    head, the query kernel is instead.
    """

    def __init__(self, key: jax.Array, cfg: T5Config, make_mlp: MakeMlp | None = None):
        make_mlp = make_mlp or t5_mlp(cfg)
        embedding_key, encoder_key, decoder_key, logits_key = jax.random.split(key, 4)
        shape = (cfg.vocab_size, cfg.model_dim)
        self.token_embedding = Param(normal(1.0)(embedding_key, shape, cfg.param_dtype))
        self.encoder = Encoder(encoder_key, cfg, make_mlp)
        self.decoder = Decoder(decoder_key, cfg, make_mlp)
        if not cfg.tied_logits:
            init = normal(cfg.model_dim**-0.5)
            self.logits = Param(init(logits_key, shape[::-1], cfg.param_dtype))
        self.cfg = cfg

    def __call__(
        self, batch: Batch, *, key: jax.Array | None = None, keep: jax.Array | None = None
    ) -> jax.Array:
        """Returns logits at every target position, float32 (B, T, V)."""
        encoder_key, decoder_key = split_key(key, 2)
        depth = self.cfg.num_encoder_layers
        encoder_keep, decoder_keep = (None, None) if keep is None else (keep[:depth], keep[depth:])
        inputs_BS, targets_BT = batch["inputs"], batch["targets"]
        input_segments_BS = batch.get("inputs_segment_ids")
        target_segments_BT = batch.get("targets_segment_ids")
        encoded_BSD = self.encode(
            inputs_BS, segments_BS=input_segments_BS, key=encoder_key, keep=encoder_keep
        )
        if input_segments_BS is None or target_segments_BT is None:
            cross_mask = padding_mask(inputs_BS)
        else:
            cross_mask = segment_mask(target_segments_BT, input_segments_BS)
        x_BTD = self.embed(shift_right(targets_BT, target_segments_BT))
        x_BTD = self.decoder(
            x_BTD,
            encoded_BSD,
            segments_BT=target_segments_BT,
            cross_mask=cross_mask,
            key=decoder_key,
            keep=decoder_keep,
        )
        return self.project(x_BTD)

    def losses(
        self,
        batch: Batch,
        *,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
        per_example: bool = False,
    ) -> Sums:
        """Returns (sum, count) of `loss`, `nll` and `accuracy` over all targets but padding."""
        values = token_losses(
            self(batch, key=key, keep=keep),
            batch["targets"],
            z_loss=self.cfg.z_loss,
            label_smoothing=self.cfg.label_smoothing,
        )
        return weighted_sums(values, batch["targets"] != 0, per_example=per_example)

    def embed(self, tokens_BT: jax.Array) -> jax.Array:
        """Looks tokens up; an id outside the vocabulary gives NaN."""
        table_VD = constrain(self.token_embedding[...], "table")
        rows_BTD = jnp.take(table_VD, tokens_BT, axis=0)
        return rows_BTD.astype(self.cfg.compute_dtype)

    def encode(
        self,
        inputs_BS: jax.Array,
        *,
        segments_BS: jax.Array | None = None,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the encoder's output (B, S, D)."""
        if segments_BS is None:
            mask = padding_mask(inputs_BS)
        else:
            mask = segment_mask(segments_BS, segments_BS)
        return self.encoder(self.embed(inputs_BS), mask=mask, key=key, keep=keep)

    def project(self, x_BTD: jax.Array) -> jax.Array:
        """Turns the decoder's output into logits, float32 (B, T, V)."""
        if self.cfg.tied_logits:
            x_BTD = x_BTD * self.cfg.model_dim**-0.5
            kernel, contract = self.token_embedding[...], 1
        else:
            kernel, contract = self.logits[...], 0
        logits_BTV = jax.lax.dot_general(
            x_BTD,
            kernel.astype(x_BTD.dtype),
            (((2,), (contract,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        return constrain(logits_BTV, "logits")


class Encoder(Module):
    """Layers that see the whole input, behind one table of relative positions."""

    def __init__(self, key: jax.Array, cfg: T5Config, make_mlp: MakeMlp):
        table_key, layers_key = jax.random.split(key)
        self.relative_bias = _relative_table(table_key, cfg)
        self.layers = stack(
            lambda key: EncoderLayer(key, cfg, make_mlp), layers_key, cfg.num_encoder_layers
        )
        self.final_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.cfg = cfg

    def __call__(
        self,
        x_BSD: jax.Array,
        *,
        mask: jax.Array,
        key: jax.Array | None,
        keep: jax.Array | None,
    ) -> jax.Array:
        cfg = self.cfg
        in_key, layers_key, out_key = split_key(key, 3)
        positions_S = jnp.arange(x_BSD.shape[1])
        bias = relative_bias(
            self.relative_bias[...],
            positions_S,
            positions_S,
            bidirectional=True,
            max_distance=cfg.relative_max_distance,
        )
        x_BSD = run_layers(
            lambda layer, x, key: layer(x, bias=bias, mask=mask, key=key),
            self.layers,
            dropout(x_BSD, cfg.dropout, in_key),
            key=layers_key,
            keep=keep,
            scan=cfg.scan_layers,
            remat=cfg.remat,
        )
        x_BSD = rms_norm(x_BSD, self.final_norm[...], cfg.norm_epsilon)
        return dropout(x_BSD, cfg.dropout, out_key)


class Decoder(Module):
    """Causal layers that also see the encoder's output."""

    def __init__(self, key: jax.Array, cfg: T5Config, make_mlp: MakeMlp):
        table_key, layers_key = jax.random.split(key)
        self.relative_bias = _relative_table(table_key, cfg)
        self.layers = stack(
            lambda key: DecoderLayer(key, cfg, make_mlp), layers_key, cfg.num_decoder_layers
        )
        self.final_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.cfg = cfg

    def __call__(
        self,
        x_BTD: jax.Array,
        encoded_BSD: jax.Array,
        *,
        segments_BT: jax.Array | None,
        cross_mask: jax.Array,
        key: jax.Array | None,
        keep: jax.Array | None,
    ) -> jax.Array:
        cfg = self.cfg
        in_key, layers_key, out_key = split_key(key, 3)
        positions_T = jnp.arange(x_BTD.shape[1])
        bias = relative_bias(
            self.relative_bias[...],
            positions_T,
            positions_T,
            bidirectional=False,
            max_distance=cfg.relative_max_distance,
        )
        # Padding follows all targets, so that the causal mask hides it already.
        mask = None if segments_BT is None else segment_mask(segments_BT, segments_BT)
        x_BTD = run_layers(
            lambda layer, x, key: layer(
                x, encoded_BSD, bias=bias, mask=mask, cross_mask=cross_mask, key=key
            ),
            self.layers,
            dropout(x_BTD, cfg.dropout, in_key),
            key=layers_key,
            keep=keep,
            scan=cfg.scan_layers,
            remat=cfg.remat,
        )
        x_BTD = rms_norm(x_BTD, self.final_norm[...], cfg.norm_epsilon)
        return dropout(x_BTD, cfg.dropout, out_key)


def shift_right(targets_BT: jax.Array, segments_BT: jax.Array | None = None) -> jax.Array:
    """Returns the decoder's input: the target before each, 0 where a sequence or segment starts."""
    shifted_BT = jnp.pad(targets_BT[:, :-1], ((0, 0), (1, 0)))
    if segments_BT is None:
        return shifted_BT
    same_BT = segments_BT == jnp.pad(segments_BT[:, :-1], ((0, 0), (1, 0)))
    return jnp.where(same_BT, shifted_BT, 0)


def forward_flops(
    cfg: T5Config, params: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Returns the FLOPs of every matrix in a forward pass over a batch of these shapes."""
    (batch, inputs), (_, targets) = shapes["inputs"], shapes["targets"]
    flops = matrix_flops(
        params,
        [
            (r"encoder/layers/.*", batch * inputs),
            (r"decoder/layers/cross_attention/(key|value)", batch * inputs),
            (r"decoder/layers/.*", batch * targets),
            (r"logits", batch * targets),
            (r"token_embedding", batch * targets if cfg.tied_logits else 0),
            (r"(encoder|decoder)/relative_bias", 0),
        ],
    )
    pairs = [
        (cfg.num_encoder_layers, inputs, inputs),
        (cfg.num_decoder_layers, targets, targets),
        (cfg.num_decoder_layers, targets, inputs),
    ]
    inner_dim = cfg.num_heads * cfg.head_dim
    flops["attention_scores"] = sum(
        attention_flops(layers=layers, batch=batch, queries=queries, keys=keys, inner_dim=inner_dim)
        for layers, queries, keys in pairs
    )
    return flops


def attention_kernels(cfg: T5Config, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Returns which kernel each attention block runs on this device for such a batch."""
    (_, inputs), (_, targets) = shapes["inputs"], shapes["targets"]
    lengths = {
        "encoder/attention": (inputs, inputs),
        "decoder/attention": (targets, targets),
        "decoder/cross_attention": (targets, inputs),
    }
    return {
        path: choose_kernel(
            cfg.attention,
            dtype=cfg.compute_dtype,
            head_dim=cfg.head_dim,
            query_length=queries,
            key_length=keys,
        )
        for path, (queries, keys) in lengths.items()
    }


def _relative_table(key: jax.Array, cfg: T5Config) -> Param:
    shape = (cfg.relative_buckets, cfg.num_heads)
    return Param(normal(cfg.model_dim**-0.5)(key, shape, cfg.param_dtype))
