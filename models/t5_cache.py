"""T5's decoder one token at a time: what it has computed before is kept, not computed again."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.attention import padding_mask
from models.layers import rms_norm
from models.mesh import constrain
from models.relative import relative_bias
from models.t5 import T5
from models.t5_layers import DecoderLayer

# Shape suffixes: B batch, N continuations (beams) of each input, X = B x N, S input tokens,
# T target tokens, D width, V vocabulary, L layers, H heads, K width of a head.


class Memory(NamedTuple):
    """The input as the decoder's layers see it, the same for all continuations."""

    # Keys of the cross-attention, in the compute dtype.
    keys_LBSHK: jax.Array
    # Values of the cross-attention, in the compute dtype.
    values_LBSHK: jax.Array
    # Which input tokens are visible, bool (B, 1, 1, S).
    mask: jax.Array


class Past(NamedTuple):
    """Self-attention's keys and values at earlier positions; zero from the current one on."""

    keys_LBNTHK: jax.Array
    values_LBNTHK: jax.Array

    def write(self, layer: jax.Array, position: jax.Array, *new_BNHK: jax.Array) -> "Past":
        """Returns the past with one layer's key and value at a position.

        They go into the arrays of all layers, which the loops around can change in place.
        """
        start = (layer, 0, 0, position, 0, 0)
        pairs = zip(self, new_BNHK, strict=True)
        return Past(
            *(jax.lax.dynamic_update_slice(old, new[None, :, :, None], start) for old, new in pairs)
        )

    def read(self, layer: jax.Array) -> list[jax.Array]:
        """Returns one layer's keys and values, (X, T, H, K)."""
        rows = (jax.lax.dynamic_index_in_dim(old, layer, keepdims=False) for old in self)
        return [row.reshape(-1, *row.shape[2:]) for row in rows]


def read_inputs(model: T5, inputs_BS: jax.Array) -> Memory:
    """Runs the encoder, and projects its output for the cross-attention of every decoder layer."""
    encoded_BSD = model.encode(inputs_BS)

    def project(layer: DecoderLayer) -> tuple[jax.Array, jax.Array]:
        return layer.cross_attention.project_key_value(encoded_BSD)

    return Memory(*jax.vmap(project)(model.decoder.layers), padding_mask(inputs_BS))


def empty_past(model: T5, *, batch_size: int, num_beams: int, max_length: int) -> Past:
    """Returns the past of continuations that have not begun."""
    cfg = model.cfg
    beams = (cfg.num_decoder_layers, batch_size, num_beams)
    zeros = jnp.zeros((*beams, max_length, cfg.num_heads, cfg.head_dim), cfg.compute_dtype)
    return Past(zeros, zeros)


def decode_step(
    model: T5, memory: Memory, past: Past, tokens_BN: jax.Array, position: jax.Array
) -> tuple[jax.Array, Past]:
    """Returns the logits after the token at `position`, float32 (B, N, V), and the past with it.

    Attention is XLA's, because the fused kernels take no single query.
    """
    cfg, decoder = model.cfg, model.decoder
    positions_T = jnp.arange(past.keys_LBNTHK.shape[3])
    bias = relative_bias(
        decoder.relative_bias[...],
        position[None],
        positions_T,
        bidirectional=False,
        max_distance=cfg.relative_max_distance,
    )
    filled = (positions_T <= position)[None, None, None]

    def run_layer(carry: tuple[jax.Array, Past], inputs: tuple):
        (x_BND, past), (layer, index, memory_keys, memory_values) = carry, inputs
        x_BND = constrain(x_BND, "residual")
        h_BND = rms_norm(x_BND, layer.attention_norm[...], cfg.norm_epsilon)
        past = past.write(index, position, *layer.attention.project_key_value(h_BND))
        q_BNHK = layer.attention.project_query(h_BND)
        q_X1HK = q_BNHK.reshape(-1, 1, *q_BNHK.shape[2:])  # every beam has a past of its own
        h_X1D = layer.attention.mix(q_X1HK, *past.read(index), bias=bias, mask=filled, kernel="xla")
        x_BND += h_X1D.reshape(x_BND.shape)
        # The beams of one input are queries to the same memory, which is so not repeated for them.
        h_BND = rms_norm(x_BND, layer.cross_attention_norm[...], cfg.norm_epsilon)
        q_BNHK = layer.cross_attention.project_query(h_BND)
        x_BND += layer.cross_attention.mix(
            q_BNHK, memory_keys, memory_values, mask=memory.mask, kernel="xla"
        )
        x_BND += layer.mlp(rms_norm(x_BND, layer.mlp_norm[...], cfg.norm_epsilon))
        return (x_BND, past), None

    (x_BND, past), _ = jax.lax.scan(
        run_layer,
        (model.embed(tokens_BN), past),
        (
            decoder.layers,
            jnp.arange(cfg.num_decoder_layers),
            memory.keys_LBSHK,
            memory.values_LBSHK,
        ),
        unroll=not cfg.scan_layers,
    )
    return model.project(rms_norm(x_BND, decoder.final_norm[...], cfg.norm_epsilon)), past
