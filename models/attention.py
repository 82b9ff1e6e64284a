"""Multi-head attention: projections, masks and the choice of kernel."""

from typing import Literal

import jax
import jax.numpy as jnp

from models.errors import UserError
from models.functional import Module, Param
from models.layers import Initializer, dense, dropout

# Shape suffixes: B batch, T queries, S keys and values, D width, H heads, K width of a head.


def choose_kernel(
    requested: str,
    *,
    dtype: jax.typing.DTypeLike,
    head_dim: int,
    query_length: int,
    key_length: int,
) -> Literal["xla", "cudnn"]:
    """Returns "cudnn" or "xla" for a request of "auto", "cudnn" or "xla" on the default device.

    Raises UserError if cuDNN is asked for and cannot do it; "auto" takes it wherever it can.
    """
    obstacle = _cudnn_obstacle(jnp.dtype(dtype), head_dim, query_length, key_length)
    if requested == "xla" or (requested == "auto" and obstacle):
        return "xla"
    if obstacle:
        raise UserError(f"attention=cudnn: {obstacle}. attention=auto takes xla there.")
    return "cudnn"


def _cudnn_obstacle(
    dtype: jnp.dtype, head_dim: int, query_length: int, key_length: int
) -> str | None:
    """Says why cuDNN's fused attention with a bias cannot be trained, or None if it can."""
    device = jax.devices()[0]
    if "cuda" not in device.client.platform_version:
        return f"needs an NVIDIA GPU, this is {device.device_kind}"
    if tuple(int(part) for part in device.compute_capability.split(".")) < (8, 0):
        return f"needs compute capability 8.0, {device.device_kind} has {device.compute_capability}"
    if dtype not in (jnp.bfloat16, jnp.float16):
        return f"needs compute_dtype=bfloat16 or float16, not {dtype}"
    if head_dim % 8 or head_dim > 128:
        return f"needs head_dim to be a multiple of 8 up to 128, not {head_dim}"
    if query_length % 2 or key_length % 2:
        return f"needs even sequence lengths, not {query_length} and {key_length}"
    return None


def padding_mask(tokens_BS: jax.Array) -> jax.Array:
    """Lets every query see all keys but padding (id 0); returns bool (B, 1, 1, S)."""
    return (tokens_BS != 0)[:, None, None, :]


def segment_mask(query_segments_BT: jax.Array, key_segments_BS: jax.Array) -> jax.Array:
    """Lets queries see keys of their own segment only; returns bool (B, 1, T, S)."""
    return query_segments_BT[:, None, :, None] == key_segments_BS[:, None, None, :]


def attend(
    q_BTHK: jax.Array,
    k_BSHK: jax.Array,
    v_BSHK: jax.Array,
    *,
    bias: jax.Array | None = None,
    mask: jax.Array | None = None,
    is_causal: bool = False,
    scale: float,
    kernel: str = "auto",
    dropout_rate: float = 0.0,
    key: jax.Array | None = None,
) -> jax.Array:
    """softmax(scale q k + bias) v with a float32 softmax (arXiv 1706.03762, eq. 1); (B, T, H, K).

    `bias` broadcasts to (B, H, T, S), as does the boolean `mask` (True: visible). With `is_causal`
    query t sees keys up to t. Keys and values may come from a cache, with a mask over its length.
    """
    if key is not None and dropout_rate > 0.0:
        # No fused kernel drops attention weights, so here they are spelt out.
        weights = _weights(q_BTHK, k_BSHK, bias, mask, is_causal, scale)
        weights = dropout(weights, dropout_rate, key).astype(v_BSHK.dtype)
        return jnp.einsum("bhts,bshk->bthk", weights, v_BSHK)
    implementation = choose_kernel(
        kernel,
        dtype=q_BTHK.dtype,
        head_dim=q_BTHK.shape[-1],
        query_length=q_BTHK.shape[1],
        key_length=k_BSHK.shape[1],
    )
    if implementation == "cudnn":
        bias = None if bias is None else bias.astype(q_BTHK.dtype)
        if mask is not None:  # cuDNN adds the mask to the bias and wants the query axis in full.
            rows = (mask.shape[0], mask.shape[1], q_BTHK.shape[1], k_BSHK.shape[1])
            mask = jnp.broadcast_to(mask, rows)
    return jax.nn.dot_product_attention(
        q_BTHK,
        k_BSHK,
        v_BSHK,
        bias=bias,
        mask=mask,
        is_causal=is_causal,
        scale=scale,
        implementation=implementation,
    )


def _weights(
    q_BTHK: jax.Array,
    k_BSHK: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array | None,
    is_causal: bool,
    scale: float,
) -> jax.Array:
    logits_BHTS = scale * jnp.einsum(
        "bthk,bshk->bhts", q_BTHK, k_BSHK, preferred_element_type=jnp.float32
    )
    if bias is not None:
        logits_BHTS += bias
    lowest = 0.7 * jnp.finfo(jnp.float32).min
    if mask is not None:
        logits_BHTS = jnp.where(mask, logits_BHTS, lowest)
    if is_causal:
        visible = jnp.tri(logits_BHTS.shape[2], logits_BHTS.shape[3], dtype=bool)[None, None]
        logits_BHTS = jnp.where(visible, logits_BHTS, lowest)
    return jax.nn.softmax(logits_BHTS, axis=-1)


class Attention(Module):
    """Multi-head attention whose steps can be called one by one, as a key/value cache needs.

    Kernels are `query`, `key`, `value` (D, H*K) and `out` (H*K, D), with biases of the same name
    and `_bias` if `use_bias`.
    """

    def __init__(
        self,
        key: jax.Array,
        model_dim: int,
        num_heads: int,
        head_dim: int,
        *,
        scale: float,
        init_query: Initializer,
        init_key_value: Initializer,
        init_out: Initializer,
        use_bias: bool = False,
        dropout: float = 0.0,
        kernel: str = "auto",
        dtype: str = "float32",
    ):
        inner_dim = num_heads * head_dim
        query_key, key_key, value_key, out_key = jax.random.split(key, 4)
        self.query = Param(init_query(query_key, (model_dim, inner_dim), dtype))
        self.key = Param(init_key_value(key_key, (model_dim, inner_dim), dtype))
        self.value = Param(init_key_value(value_key, (model_dim, inner_dim), dtype))
        self.out = Param(init_out(out_key, (inner_dim, model_dim), dtype))
        if use_bias:
            self.query_bias = Param(jnp.zeros((inner_dim,), dtype))
            self.key_bias = Param(jnp.zeros((inner_dim,), dtype))
            self.value_bias = Param(jnp.zeros((inner_dim,), dtype))
            self.out_bias = Param(jnp.zeros((model_dim,), dtype))
        self.use_bias = use_bias
        self.head_dim = head_dim
        self.scale = scale
        self.dropout = dropout
        self.kernel = kernel

    def __call__(
        self,
        x_BTD: jax.Array,
        memory_BSD: jax.Array,
        *,
        bias: jax.Array | None = None,
        mask: jax.Array | None = None,
        is_causal: bool = False,
        key: jax.Array | None = None,
    ) -> jax.Array:
        q_BTHK = self.project_query(x_BTD)
        k_BSHK, v_BSHK = self.project_key_value(memory_BSD)
        return self.mix(q_BTHK, k_BSHK, v_BSHK, bias=bias, mask=mask, is_causal=is_causal, key=key)

    def project_query(self, x_BTD: jax.Array) -> jax.Array:
        """Returns queries (B, T, H, K)."""
        return self._heads(dense(x_BTD, self.query[...], self._bias("query")))

    def project_key_value(self, x_BSD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns keys and values (B, S, H, K), which is what a cache holds."""
        k_BSI = dense(x_BSD, self.key[...], self._bias("key"))
        v_BSI = dense(x_BSD, self.value[...], self._bias("value"))
        return self._heads(k_BSI), self._heads(v_BSI)

    def mix(
        self,
        q_BTHK: jax.Array,
        k_BSHK: jax.Array,
        v_BSHK: jax.Array,
        *,
        bias: jax.Array | None = None,
        mask: jax.Array | None = None,
        is_causal: bool = False,
        kernel: str | None = None,
        key: jax.Array | None = None,
    ) -> jax.Array:
        """Attends and projects back to the width of the model (B, T, D).

        `kernel` is used in place of the configured one.
        """
        o_BTHK = attend(
            q_BTHK,
            k_BSHK,
            v_BSHK,
            bias=bias,
            mask=mask,
            is_causal=is_causal,
            scale=self.scale,
            kernel=kernel or self.kernel,
            dropout_rate=self.dropout,
            key=key,
        )
        return dense(o_BTHK.reshape(*o_BTHK.shape[:2], -1), self.out[...], self._bias("out"))

    def _heads(self, x_BTI: jax.Array) -> jax.Array:
        return x_BTI.reshape(*x_BTI.shape[:2], -1, self.head_dim)

    def _bias(self, name: str) -> jax.Array | None:
        return getattr(self, f"{name}_bias")[...] if self.use_bias else None
