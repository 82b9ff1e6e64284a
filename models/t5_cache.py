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

# Shape suffixes: B batch, N continuations (beams) of each input, S input tokens, T target tokens,
# D width, V vocabulary, L layers, H heads, K width of a head.


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
    """Returns the logits after the token at `position`, float32 (B, N, V), and the past with it."""
    cfg, decoder = model.cfg, model.decoder
    num_layers, batch, beams, length = past.keys_LBNTHK.shape[:4]
    positions_T = jnp.arange(length)
    bias = relative_bias(
        decoder.relative_bias[...],
        position[None],
        positions_T,
        bidirectional=False,
        max_distance=cfg.relative_max_distance,
    )
    filled = (positions_T <= position)[None, None, None]

    def attend_to_past(layer: DecoderLayer, index: jax.Array, x_BND: jax.Array, past: Past):
        attention = layer.attention
        q_BNHK = attention.project_query(x_BND)
        # Written into the arrays of all layers, so that the loops around can do it in place.
        past = Past(
            *(
                jax.lax.dynamic_update_slice(
                    old, new[None, :, :, None], (index, 0, 0, position, 0, 0)
                )
                for old, new in zip(past, attention.project_key_value(x_BND), strict=True)
            )
        )
        k_XTHK, v_XTHK = (
            jax.lax.dynamic_index_in_dim(x, index, keepdims=False).reshape(
                batch * beams, *x.shape[3:]
            )
            for x in past
        )
        q_X1HK = q_BNHK.reshape(batch * beams, 1, *q_BNHK.shape[2:])
        h_X1D = attention.mix(q_X1HK, k_XTHK, v_XTHK, bias=bias, mask=filled, kernel="xla")
        return h_X1D.reshape(x_BND.shape), past

    def run_layer(carry: tuple[jax.Array, Past], inputs: tuple):
        (x_BND, past), (layer, index, memory_keys, memory_values) = carry, inputs
        x_BND = constrain(x_BND, "residual")
        h_BND = rms_norm(x_BND, layer.attention_norm[...], cfg.norm_epsilon)
        h_BND, past = attend_to_past(layer, index, h_BND, past)
        x_BND += h_BND
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
        (decoder.layers, jnp.arange(num_layers), memory.keys_LBSHK, memory.values_LBSHK),
        unroll=not cfg.scan_layers,
    )
    return model.project(rms_norm(x_BND, decoder.final_norm[...], cfg.norm_epsilon)), past
