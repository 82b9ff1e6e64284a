"""The stack of layers that BERT and ViT share."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.attention import Attention, choose_kernel
from models.config import EncoderConfig
from models.flops import attention_flops
from models.functional import Module, Param, stack
from models.layers import GatedMlp, Initializer, MakeMlp, Mlp, dropout, layer_norm, split_key
from models.stack import run_layers

# Shape suffixes: B batch, T positions, D width.


class Encoded(NamedTuple):
    """What heads are put on."""

    # the last state of every position (B, T, D)
    hidden_BTD: jax.Array
    # one vector for each example (B, D)
    pooled_BD: jax.Array


class LayerNorm(Module):
    """LayerNorm over the width of the model, with scale and bias."""

    def __init__(self, cfg: EncoderConfig):
        self.scale = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.bias = Param(jnp.zeros(cfg.model_dim, cfg.param_dtype))
        self.epsilon = cfg.norm_epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        return layer_norm(x, self.scale[...], self.bias[...], self.epsilon)


class Encoder(Module):
    """Layers in turn, and a final norm if the layers norm what they read (`pre_norm`)."""

    def __init__(
        self, key: jax.Array, cfg: EncoderConfig, make_mlp: MakeMlp | None, *, init: Initializer
    ):
        make_mlp = make_mlp or _mlp(cfg, init)
        self.layers = stack(
            lambda key: EncoderLayer(key, cfg, make_mlp, init=init), key, cfg.num_layers
        )
        if cfg.pre_norm:
            self.final_norm = LayerNorm(cfg)
        self.cfg = cfg

    def __call__(
        self,
        x_BTD: jax.Array,
        *,
        mask: jax.Array | None = None,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
    ) -> jax.Array:
        x_BTD = run_layers(
            lambda layer, x, key: layer(x, mask=mask, key=key),
            self.layers,
            x_BTD,
            key=key,
            keep=keep,
            scan=self.cfg.scan_layers,
            remat=self.cfg.remat,
        )
        return self.final_norm(x_BTD) if self.cfg.pre_norm else x_BTD


class EncoderLayer(Module):
    """Self-attention, then a feedforward block, each added to what it read."""

    def __init__(self, key: jax.Array, cfg: EncoderConfig, make_mlp: MakeMlp, *, init: Initializer):
        attention_key, mlp_key = jax.random.split(key)
        self.attention_norm = LayerNorm(cfg)
        self.attention = Attention(
            attention_key,
            cfg.model_dim,
            cfg.num_heads,
            cfg.head_dim,
            scale=cfg.head_dim**-0.5,
            init_query=init,
            init_key_value=init,
            init_out=init,
            use_bias=cfg.use_bias,
            dropout=cfg.dropout,
            kernel=cfg.attention,
            dtype=cfg.param_dtype,
        )
        self.mlp_norm = LayerNorm(cfg)
        self.mlp = make_mlp(mlp_key)
        self.cfg = cfg

    def __call__(
        self, x_BTD: jax.Array, *, mask: jax.Array | None, key: jax.Array | None
    ) -> jax.Array:
        rate = self.cfg.dropout
        keys = split_key(key, 4)

        def attend(h_BTD: jax.Array) -> jax.Array:
            return dropout(self.attention(h_BTD, h_BTD, mask=mask, key=keys[0]), rate, keys[1])

        def feed(h_BTD: jax.Array) -> jax.Array:
            return dropout(self.mlp(h_BTD, key=keys[2]), rate, keys[3])

        if self.cfg.pre_norm:
            x_BTD += attend(self.attention_norm(x_BTD))
            return x_BTD + feed(self.mlp_norm(x_BTD))
        x_BTD = self.attention_norm(x_BTD + attend(x_BTD))
        return self.mlp_norm(x_BTD + feed(x_BTD))


def score_flops(cfg: EncoderConfig, batch: int, length: int) -> int:
    """Returns the FLOPs of all products without a parameter, in a forward pass."""
    return attention_flops(
        layers=cfg.num_layers, batch=batch, queries=length, keys=length, inner_dim=cfg.model_dim
    )


def attention_kernels(cfg: EncoderConfig, length: int) -> dict[str, str]:
    """Returns which kernel attention over sequences of this length runs on this device."""
    kernel = choose_kernel(
        cfg.attention,
        dtype=cfg.compute_dtype,
        head_dim=cfg.head_dim,
        query_length=length,
        key_length=length,
    )
    return {"encoder/attention": kernel}


def _mlp(cfg: EncoderConfig, init: Initializer) -> MakeMlp:
    mlp: Callable[..., Module] = GatedMlp if cfg.gated else partial(Mlp, use_bias=cfg.use_bias)
    return lambda key: mlp(
        key,
        cfg.model_dim,
        cfg.mlp_dim,
        activation=cfg.activation,
        init_wi=init,
        init_wo=init,
        dtype=cfg.param_dtype,
    )
