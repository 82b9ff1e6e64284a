"""BERT, in its original and its crammed form by configuration (arXiv 1810.04805, 2212.14034)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models import encoder
from models.attention import padding_mask, segment_mask
from models.config import BertConfig
from models.encoder import Encoded, Encoder, LayerNorm
from models.errors import UserError
from models.flops import matrix_flops
from models.functional import Module, Param
from models.layers import ACTIVATIONS, MakeMlp, broadcast_last, dense, dropout, split_key
from models.losses import Sums, token_losses, weighted_sums
from models.mesh import constrain

# Shape suffixes: B batch, S tokens, P predicted positions, D width, V vocabulary.

Batch = Mapping[str, jax.Array]

# Every matrix starts from N(0, 0.02) (Devlin et al. 2019's code, and the crammed form's).
_INIT = jax.nn.initializers.normal(0.02)


class Bert(Module):
    """Masked language model over `tokens` (B, S), int32 with padding id 0.

    A batch to predict also has `masked_positions` and `masked_labels` (B, P), int32, and
    `masked_weights` (B, P), float32. It may have `token_types` (B, S), which a model without token
    types ignores, and `segment_ids` (B, S) if sequences are packed, counted from 1 with 0 for
    padding: positions start anew in each segment, and no segment sees another. `keep` is as in
    `run_layers`.
    """

    def __init__(self, key: jax.Array, cfg: BertConfig, make_mlp: MakeMlp | None = None):
        keys = jax.random.split(key, 6)
        width, dtype = cfg.model_dim, cfg.param_dtype
        self.token_embedding = Param(_INIT(keys[0], (cfg.vocab_size, width), dtype))
        if cfg.positions == "learned":
            self.position_embedding = Param(_INIT(keys[1], (cfg.max_length, width), dtype))
        else:
            self.position_scale = Param(jnp.full((), width**-0.5, dtype))
        if cfg.num_token_types is not None:
            self.token_type_embedding = Param(_INIT(keys[2], (cfg.num_token_types, width), dtype))
        self.embedding_norm = LayerNorm(cfg)
        self.encoder = Encoder(keys[3], cfg, make_mlp, init=_INIT)
        if cfg.pooler:
            self.pooler = Param(_INIT(keys[4], (width, width), dtype))
            self.pooler_bias = Param(jnp.zeros(width, dtype))
        if cfg.mlm_head != "none":
            self.head = Param(_INIT(keys[5], (width, width), dtype))
        if cfg.mlm_head == "transform":
            self.head_bias = Param(jnp.zeros(width, dtype))
            self.head_norm = LayerNorm(cfg)
            self.logits_bias = Param(jnp.zeros(cfg.vocab_size, dtype))
        self.cfg = cfg

    def __call__(
        self, batch: Batch, *, key: jax.Array | None = None, keep: jax.Array | None = None
    ) -> jax.Array:
        """Returns logits at the masked positions, float32 (B, P, V).

        A batch without `masked_positions` gets them at every position (B, S, V).
        """
        x_BSD = self.hidden(batch, key=key, keep=keep)
        if "masked_positions" in batch:
            rows_BP1 = batch["masked_positions"][:, :, None]
            return self.project(jnp.take_along_axis(x_BSD, rows_BP1, axis=1))
        return self.project(x_BSD)

    def losses(
        self,
        batch: Batch,
        *,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
        per_example: bool = False,
    ) -> Sums:
        """Returns (sum, count) of `loss`, `nll` and `accuracy` over the masked positions."""
        values = token_losses(self(batch, key=key, keep=keep), batch["masked_labels"])
        return weighted_sums(values, batch["masked_weights"], per_example=per_example)

    def encode(
        self, batch: Batch, *, key: jax.Array | None = None, keep: jax.Array | None = None
    ) -> Encoded:
        """Returns the state of every token, and what the pooler makes of each first one."""
        x_BSD = self.hidden(batch, key=key, keep=keep)
        first_BD = x_BSD[:, 0]
        if self.cfg.pooler:
            first_BD = jnp.tanh(dense(first_BD, self.pooler[...], self.pooler_bias[...]))
        return Encoded(x_BSD, first_BD)

    def hidden(self, batch: Batch, *, key: jax.Array | None, keep: jax.Array | None) -> jax.Array:
        """Returns the last state of every token (B, S, D)."""
        embedding_key, encoder_key = split_key(key, 2)
        segments_BS = batch.get("segment_ids")
        if segments_BS is None:
            mask = padding_mask(batch["tokens"])
        else:
            mask = segment_mask(segments_BS, segments_BS)
        x_BSD = dropout(self.embed(batch), self.cfg.dropout, embedding_key)
        return self.encoder(x_BSD, mask=mask, key=encoder_key, keep=keep)

    def embed(self, batch: Batch) -> jax.Array:
        """Returns the normed sum of a token's embeddings (B, S, D).

        Raises UserError for sequences above `max_length`; an id outside its table gives NaN.
        """
        cfg, tokens_BS = self.cfg, batch["tokens"]
        length = tokens_BS.shape[1]
        if length > cfg.max_length:
            raise UserError(f"{length} tokens in a sequence: max_length is {cfg.max_length}.")
        if cfg.positions == "learned":
            positions_SD = self.position_embedding[...][:length]
        else:
            positions_SD = self.position_scale[...] * sinusoids(length, cfg.model_dim)
        x_BSD = jnp.take(constrain(self.token_embedding[...], "table"), tokens_BS, axis=0)
        if "segment_ids" in batch:
            x_BSD += jnp.take(positions_SD, segment_positions(batch["segment_ids"]), axis=0)
        else:
            x_BSD += positions_SD[None]
        if cfg.num_token_types is not None:
            types_BS = batch.get("token_types", jnp.zeros_like(tokens_BS))
            x_BSD += jnp.take(self.token_type_embedding[...], types_BS, axis=0)
        return self.embedding_norm(x_BSD).astype(cfg.compute_dtype)

    def project(self, x_BPD: jax.Array) -> jax.Array:
        """Turns states into logits, float32 (B, P, V)."""
        head = self.cfg.mlm_head
        if head == "linear":
            x_BPD = dense(x_BPD, self.head[...])
        elif head == "transform":
            x_BPD = dense(x_BPD, self.head[...], self.head_bias[...])
            x_BPD = self.head_norm(ACTIVATIONS[self.cfg.activation](x_BPD))
        logits_BPV = jax.lax.dot_general(
            x_BPD,
            self.token_embedding[...].astype(x_BPD.dtype),
            (((2,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        if head == "transform":
            logits_BPV += broadcast_last(self.logits_bias[...].astype(jnp.float32), 3)
        return constrain(logits_BPV, "logits")


def sinusoids(length: int, width: int) -> np.ndarray:
    """Returns sin and cos of position / 10000^(2i / width) in turn, float32 (length, width).

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.5.
    """
    rates = 10000.0 ** -(np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates[None]
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, width).astype("f4")


def segment_positions(segments_BS: jax.Array) -> jax.Array:
    """Returns how many tokens of its own segment come before each token, int32 (B, S)."""
    is_start_BS = jnp.pad(segments_BS[:, 1:] != segments_BS[:, :-1], ((0, 0), (1, 0)))
    index_BS = jax.lax.broadcasted_iota(jnp.int32, segments_BS.shape, 1)
    return index_BS - jax.lax.cummax(jnp.where(is_start_BS, index_BS, 0), axis=1)


def forward_flops(
    cfg: BertConfig, params: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """Returns the FLOPs of every matrix in a forward pass over a batch of these shapes."""
    batch, length = shapes["tokens"]
    _, predicted = shapes.get("masked_positions", shapes["tokens"])
    flops = matrix_flops(
        params,
        [
            (r"encoder/layers/.*", batch * length),
            (r"head|token_embedding", batch * predicted),
            (r"position_embedding|token_type_embedding|pooler", 0),
        ],
    )
    return flops | {"attention_scores": encoder.score_flops(cfg, batch, length)}


def attention_kernels(cfg: BertConfig, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Returns which kernel the attention blocks run on this device for such a batch."""
    return encoder.attention_kernels(cfg, shapes["tokens"][1])
