"""BERT against a NumPy forward pass of its crammed form; what is predicted; packing."""

import math
from dataclasses import replace

import jax
import numpy as np
import pytest

from models.api import build, build_encoder
from models.bert import segment_positions, sinusoids
from models.errors import UserError
from tests.models.encoder_cases import BARE, BERT, CRAMMED, bert_batch
from tests.models.helpers import assert_trees_near, random_params, random_tokens


def numpy_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def numpy_norm(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * norm["scale"]
        + norm["bias"]
    )


def numpy_attention(x, params, is_visible):
    """Attention of one sequence (S, D) with two heads of width 3, one head after the other."""
    out = np.zeros_like(x)
    for head in (slice(0, 3), slice(3, 6)):
        q, k, v = (x @ params[name][:, head] for name in ("query", "key", "value"))
        logits = np.where(is_visible[None], q @ k.T / math.sqrt(3), -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        out += weights / weights.sum(-1, keepdims=True) @ v @ params["out"][head]
    return out


def numpy_logits(params, tokens):
    """Logits of one sequence (S, V) in float64, by the crammed form's formulas."""
    positions = params.get("position_embedding")
    if positions is None:
        sines = [
            [(math.cos if j % 2 else math.sin)(s / 10000 ** (2 * (j // 2) / 6)) for j in range(6)]
            for s in range(len(tokens))
        ]
        positions = params["position_scale"] * np.array(sines)
    x = params["token_embedding"][tokens] + positions[: len(tokens)]
    x = numpy_norm(x, params["embedding_norm"])
    for i in range(3):
        layer = jax.tree.map(lambda leaf, i=i: leaf[i], params["encoder"]["layers"])
        h = numpy_norm(x, layer["attention_norm"])
        x = x + numpy_attention(h, layer["attention"], tokens != 0)
        h, mlp = numpy_norm(x, layer["mlp_norm"]), layer["mlp"]
        if "wi_gate" in mlp:
            x = x + (numpy_gelu(h @ mlp["wi_gate"]) * (h @ mlp["wi_up"])) @ mlp["wo"]
        else:
            x = x + numpy_gelu(h @ mlp["wi"]) @ mlp["wo"]
    x = numpy_norm(x, params["encoder"]["final_norm"])
    return (x @ params["head"] if "head" in params else x) @ params["token_embedding"].T


@pytest.mark.parametrize("cfg", [CRAMMED, BARE], ids=["gated", "bare"])
def test_crammed_form_equals_numpy(cfg):
    model, batch = build(cfg), bert_batch()
    params = random_params(model)
    logits = jax.jit(model.apply)(params, {"tokens": batch["tokens"]})
    exact = jax.tree.map(lambda leaf: leaf.astype(np.float64), params)
    expected = np.stack([numpy_logits(exact, tokens) for tokens in batch["tokens"]])
    assert_trees_near(logits, expected, 1e-5)
    masked = np.take_along_axis(expected, batch["masked_positions"][:, :, None], axis=1)
    log_z = np.log(np.exp(masked).sum(-1))
    nll = log_z - np.take_along_axis(masked, batch["masked_labels"][:, :, None], axis=2)[..., 0]
    sums = jax.jit(model.losses)(params, batch)
    np.testing.assert_allclose(sums["nll"], [nll.ravel()[:7].sum(), 7], rtol=1e-5)
    np.testing.assert_allclose(sums["loss"], sums["nll"])


@pytest.mark.parametrize("cfg", [BERT, CRAMMED], ids=["original", "crammed"])
def test_masked_positions_get_the_logits_of_their_place(cfg):
    model, batch = build(cfg), bert_batch()
    params = random_params(model)
    everywhere = {name: batch[name] for name in ("tokens", "token_types")}
    dense_BSV, sparse_BPV = jax.jit(lambda p: [model.apply(p, b) for b in (everywhere, batch)])(
        params
    )
    assert sparse_BPV.shape == (2, 4, 23) and sparse_BPV.dtype == np.float32
    for row, positions in enumerate(batch["masked_positions"]):
        for column, position in enumerate(positions):
            np.testing.assert_allclose(
                sparse_BPV[row, column], dense_BSV[row, position], rtol=1e-5, atol=1e-5
            )


def test_no_array_of_all_logits_exists_in_training():
    model, batch = build(CRAMMED), bert_batch()
    jaxpr = str(
        jax.make_jaxpr(jax.grad(lambda p: model.losses(p, batch)["loss"][0]))(random_params(model))
    )
    assert "f32[2,4,23]" in jaxpr and "f32[2,11,23]" not in jaxpr


@pytest.mark.parametrize(
    "cfg", [replace(BERT, pooler=False), CRAMMED], ids=["learned", "sinusoids"]
)
def test_packed_equals_separate(cfg):
    encode, params = jax.jit(build_encoder(cfg)), random_params(build(cfg))
    lengths = (4, 5, 2)
    tokens, types = random_tokens(lengths, 23), random_tokens(lengths, 3, seed=1)
    separate = encode(params, {"tokens": tokens, "token_types": types}).hidden_BTD
    is_token = tokens != 0
    row = {name: np.zeros((1, 13), np.int32) for name in ("tokens", "token_types", "segment_ids")}
    row["tokens"][0, :11], row["token_types"][0, :11] = tokens[is_token], types[is_token]
    row["segment_ids"][0, :11] = np.repeat([1, 2, 3], lengths)
    packed = encode(params, row).hidden_BTD
    assert_trees_near(packed[0, :11], separate[is_token], 1e-5)


def test_segment_positions():
    segments = np.array([[1, 1, 1, 2, 3, 3, 0, 0], [5, 5, 5, 5, 5, 5, 5, 5]], np.int32)
    expected = [[0, 1, 2, 0, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5, 6, 7]]
    np.testing.assert_array_equal(segment_positions(segments), expected)


def test_sinusoids_are_exact():
    table = sinusoids(512, 768)
    assert table.dtype == np.float32
    assert table[0, :4].tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(table[511, 10], math.sin(511 * 10000 ** (-10 / 768)), rtol=1e-6)
    np.testing.assert_allclose(table[511, 11], math.cos(511 * 10000 ** (-10 / 768)), rtol=1e-6)


def test_without_a_pooler_the_first_token_stands_for_the_sequence():
    encoded = jax.jit(build_encoder(CRAMMED))(random_params(build(CRAMMED)), bert_batch())
    np.testing.assert_array_equal(encoded.pooled_BD, encoded.hidden_BTD[:, 0])


def test_too_long_a_sequence():
    model = build(CRAMMED)
    with pytest.raises(UserError, match="14 tokens in a sequence: max_length is 13"):
        jax.eval_shape(model.apply, random_params(model), {"tokens": np.ones((1, 14), np.int32)})
