"""The layers of T5 and their initialisation."""

import jax
import jax.numpy as jnp

from models.attention import Attention
from models.config import T5Config
from models.functional import Module, Param
from models.layers import GatedMlp, MakeMlp, Mlp, dropout, rms_norm, split_key

# Shape suffixes: B batch, S input tokens, T target tokens, D width.

normal = jax.nn.initializers.normal


class EncoderLayer(Module):
    """Self-attention and feedforward block, each on a normed copy of the residual stream."""

    def __init__(self, key: jax.Array, cfg: T5Config, make_mlp: MakeMlp):
        attention_key, mlp_key = jax.random.split(key)
        self.attention_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.attention = _attention(attention_key, cfg)
        self.mlp_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.mlp = make_mlp(mlp_key)
        self.cfg = cfg

    def __call__(
        self, x_BSD: jax.Array, *, bias: jax.Array, mask: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        rate, epsilon = self.cfg.dropout, self.cfg.norm_epsilon
        keys = split_key(key, 4)
        h_BSD = rms_norm(x_BSD, self.attention_norm[...], epsilon)
        h_BSD = self.attention(h_BSD, h_BSD, bias=bias, mask=mask, key=keys[0])
        x_BSD += dropout(h_BSD, rate, keys[1])
        h_BSD = self.mlp(rms_norm(x_BSD, self.mlp_norm[...], epsilon), key=keys[2])
        return x_BSD + dropout(h_BSD, rate, keys[3])


class DecoderLayer(Module):
    """Causal self-attention, attention to the encoder's output, feedforward block."""

    def __init__(self, key: jax.Array, cfg: T5Config, make_mlp: MakeMlp):
        attention_key, cross_key, mlp_key = jax.random.split(key, 3)
        self.attention_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.attention = _attention(attention_key, cfg)
        self.cross_attention_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.cross_attention = _attention(cross_key, cfg)
        self.mlp_norm = Param(jnp.ones(cfg.model_dim, cfg.param_dtype))
        self.mlp = make_mlp(mlp_key)
        self.cfg = cfg

    def __call__(
        self,
        x_BTD: jax.Array,
        encoded_BSD: jax.Array,
        *,
        bias: jax.Array,
        mask: jax.Array | None,
        cross_mask: jax.Array,
        key: jax.Array | None,
    ) -> jax.Array:
        rate, epsilon = self.cfg.dropout, self.cfg.norm_epsilon
        keys = split_key(key, 6)
        h_BTD = rms_norm(x_BTD, self.attention_norm[...], epsilon)
        h_BTD = self.attention(h_BTD, h_BTD, bias=bias, mask=mask, is_causal=True, key=keys[0])
        x_BTD += dropout(h_BTD, rate, keys[1])
        h_BTD = rms_norm(x_BTD, self.cross_attention_norm[...], epsilon)
        h_BTD = self.cross_attention(h_BTD, encoded_BSD, mask=cross_mask, key=keys[2])
        x_BTD += dropout(h_BTD, rate, keys[3])
        h_BTD = self.mlp(rms_norm(x_BTD, self.mlp_norm[...], epsilon), key=keys[4])
        return x_BTD + dropout(h_BTD, rate, keys[5])


def t5_mlp(cfg: T5Config) -> MakeMlp:
    """Returns the maker of T5's own feedforward block."""
    mlp = GatedMlp if cfg.gated else Mlp
    return lambda key: mlp(
        key,
        cfg.model_dim,
        cfg.mlp_dim,
        activation=cfg.activation,
        init_wi=normal(cfg.model_dim**-0.5),
        init_wo=normal(cfg.mlp_dim**-0.5),
        dropout=cfg.dropout,
        dtype=cfg.param_dtype,
    )


def _attention(key: jax.Array, cfg: T5Config) -> Attention:
    return Attention(
        key,
        cfg.model_dim,
        cfg.num_heads,
        cfg.head_dim,
        scale=1.0,
        init_query=normal((cfg.model_dim * cfg.head_dim) ** -0.5),
        init_key_value=normal(cfg.model_dim**-0.5),
        init_out=normal((cfg.num_heads * cfg.head_dim) ** -0.5),
        dropout=cfg.dropout,
        kernel=cfg.attention,
        dtype=cfg.param_dtype,
    )
