"""Attention against loops in NumPy, with a cache, and the choice of kernel."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.attention import Attention, attend, choose_kernel, padding_mask, segment_mask
from models.errors import UserError
from models.functional import functional

B, T, S, H, K = 2, 5, 7, 3, 4
RNG = np.random.default_rng(0)
Q = RNG.standard_normal((B, T, H, K)).astype(np.float32)
KEYS = RNG.standard_normal((B, S, H, K)).astype(np.float32)
VALUES = RNG.standard_normal((B, S, H, K)).astype(np.float32)
BIAS = RNG.standard_normal((1, H, T, S)).astype(np.float32)


def loop(bias=None, mask=None, is_causal=False, scale=1.0):
    """Attends one query at a time."""
    out = np.zeros((B, T, H, K))
    for b, t, h in np.ndindex(B, T, H):
        visible = [
            s
            for s in range(S)
            if (mask is None or np.broadcast_to(mask, (B, 1, T, S))[b, 0, t, s])
            and (not is_causal or s <= t)
        ]
        logits = [
            scale * Q[b, t, h].astype(np.float64) @ KEYS[b, s, h]
            + (0 if bias is None else bias[0, h, t, s])
            for s in visible
        ]
        weights = np.exp(logits - np.max(logits))
        out[b, t, h] = weights / weights.sum() @ VALUES[b, visible, h]
    return out


MASK = np.ones((B, 1, 1, S), bool)
MASK[1, ..., 4:] = False


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": 0.5},
        {"bias": BIAS},
        {"mask": MASK},
        {"is_causal": True},
        {"bias": BIAS, "mask": MASK, "is_causal": True, "scale": 0.3},
    ],
)
@pytest.mark.parametrize("spelt_out", [False, True])
def test_attend(options, spelt_out):
    options = {"scale": 1.0, **options}
    # So small a rate drops nothing, but takes the path on which weights can be dropped.
    dropping = {"dropout_rate": 1e-9, "key": jax.random.key(0)} if spelt_out else {}
    ours = attend(Q, KEYS, VALUES, **options, **dropping)
    np.testing.assert_allclose(ours, loop(**options), rtol=1e-4, atol=1e-5)


def test_dropped_weights_are_zero_and_the_rest_scaled():
    values = np.broadcast_to(np.eye(S, dtype=np.float32)[None, :, None], (B, S, H, S))
    keys = np.zeros((B, S, H, K), np.float32)  # all weights 1 / S, which the values then show
    out = attend(Q, keys, values, scale=1.0, dropout_rate=0.5, key=jax.random.key(0))
    np.testing.assert_allclose(np.unique(out), [0, 2 / S], rtol=1e-6)


def test_softmax_is_float32_for_bfloat16():
    q, k = jnp.full((1, 1, 1, 1), 1.0, jnp.bfloat16), jnp.zeros((1, 1024, 1, 1), jnp.bfloat16)
    out = attend(q, k, jnp.ones_like(k), scale=1.0)  # a bfloat16 sum of 1,024 ones would be 256
    assert out.dtype == jnp.bfloat16
    np.testing.assert_allclose(out.astype(np.float32), 1.0, rtol=1e-2)


def test_masks():
    tokens = np.array([[5, 3, 0], [1, 0, 0]])
    np.testing.assert_array_equal(padding_mask(tokens)[:, 0, 0], tokens != 0)
    queries, keys = np.array([[1, 1, 2, 0]]), np.array([[1, 2, 2]])
    expected = [[True, False, False]] * 2 + [[False, True, True]] + [[False] * 3]
    np.testing.assert_array_equal(segment_mask(queries, keys)[0, 0], expected)


@pytest.mark.parametrize("use_bias", [False, True])
def test_one_query_at_a_time_with_a_cache_equals_all_at_once(use_bias):
    init, apply = functional(
        lambda key: Attention(
            key,
            6,
            H,
            K,
            scale=0.5,
            init_query=jax.nn.initializers.normal(1.0),
            init_key_value=jax.nn.initializers.normal(1.0),
            init_out=jax.nn.initializers.normal(1.0),
            use_bias=use_bias,
        )
    )
    params = jax.tree.map(
        lambda leaf: RNG.standard_normal(leaf.shape).astype(np.float32), init(jax.random.key(0))
    )
    assert len(params) == (8 if use_bias else 4)
    x = RNG.standard_normal((B, T, 6)).astype(np.float32)
    bias = RNG.standard_normal((1, H, T, T)).astype(np.float32)
    whole = apply(params, Attention.__call__, x, x, bias=bias, is_causal=True)
    keys, values = np.zeros((2, B, T, H, K), np.float32)
    for t in range(T):
        now = x[:, t : t + 1]
        query = apply(params, Attention.project_query, now)
        keys[:, t : t + 1], values[:, t : t + 1] = apply(params, Attention.project_key_value, now)
        filled = (np.arange(T) <= t)[None, None, None]
        row = apply(
            params, Attention.mix, query, keys, values, bias=bias[:, :, t : t + 1], mask=filled
        )
        np.testing.assert_allclose(row[:, 0], whole[:, t], rtol=1e-4, atol=1e-4)


def test_kernel_on_a_cpu():
    shape = {"dtype": "bfloat16", "head_dim": 64, "query_length": 8, "key_length": 8}
    assert choose_kernel("auto", **shape) == "xla"
    assert choose_kernel("xla", **shape) == "xla"
    with pytest.raises(UserError, match="attention=cudnn: needs an NVIDIA GPU, this is cpu"):
        choose_kernel("cudnn", **shape)


def cuda_device(kind: str, compute_capability: str) -> SimpleNamespace:
    client = SimpleNamespace(platform_version="PJRT C API\ncuda 13000")
    return SimpleNamespace(device_kind=kind, compute_capability=compute_capability, client=client)


_H100 = cuda_device("NVIDIA H100 80GB HBM3", "9.0")
_T4 = cuda_device("Tesla T4", "7.5")


@pytest.mark.parametrize(
    ("device", "changes", "obstacle"),
    [
        (_H100, {}, None),
        (_H100, {"dtype": "float32"}, "compute_dtype=bfloat16 or float16, not float32"),
        (_H100, {"head_dim": 60}, "multiple of 8 up to 128, not 60"),
        (_H100, {"key_length": 7}, "even sequence lengths, not 8 and 7"),
        (_T4, {}, "compute capability 8.0, Tesla T4 has 7.5"),
    ],
)
def test_kernel_on_a_gpu(monkeypatch, device, changes, obstacle):
    monkeypatch.setattr(jax, "devices", lambda: [device])
    shape = {"dtype": "bfloat16", "head_dim": 64, "query_length": 8, "key_length": 8} | changes
    assert choose_kernel("auto", **shape) == ("xla" if obstacle else "cudnn")
    if obstacle:
        with pytest.raises(UserError, match=obstacle):
            choose_kernel("cudnn", **shape)
