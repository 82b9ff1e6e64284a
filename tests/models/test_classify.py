"""A head on an encoder: its outputs by hand, its losses, and that padding changes nothing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.api import build, build_encoder
from models.classify import build_classifier
from models.config import HeadConfig, T5Config
from models.errors import UserError
from models.presets import BERT_DEMO, CRAMMED_BERT_DEMO, VIT_DEMO

SMALL = {"num_layers": 1, "model_dim": 16, "num_heads": 2, "mlp_dim": 32}
CRAMMED = dataclasses.replace(CRAMMED_BERT_DEMO, vocab_size=50, **SMALL)
BERT = dataclasses.replace(BERT_DEMO, vocab_size=50, **SMALL)
VIT = dataclasses.replace(VIT_DEMO, **SMALL)


def text_batch(outputs):
    draw = np.random.default_rng(0)
    tokens = draw.integers(3, 50, (4, 12)).astype(np.int32)
    tokens[1, 7:] = 0
    labels = draw.integers(0, max(outputs, 2), 4).astype(np.float32)
    return {"tokens": tokens, "labels": labels, "weights": np.ones(4, np.float32)}


@pytest.mark.parametrize(
    ("cfg", "pooling", "hidden_dim"),
    [(CRAMMED, "first", 8), (CRAMMED, "mean", 0), (BERT, "first", 0), (BERT, "mean", 8)],
)
def test_outputs_by_hand(cfg, pooling, hidden_dim):
    head = HeadConfig(num_outputs=3, pooling=pooling, hidden_dim=hidden_dim)
    model, batch = build_classifier(cfg, head), text_batch(3)
    params = model.init(jax.random.key(1))
    trunk = {name: value for name, value in params.items() if name != "task_head"}
    encoded = build_encoder(cfg)(trunk, batch)
    own = jax.tree.map(np.asarray, params["task_head"])
    if pooling == "first":
        x = np.asarray(encoded.pooled_BD)
    else:
        rows = zip(np.asarray(encoded.hidden_BTD), batch["tokens"], strict=True)
        x = np.stack([hidden[tokens != 0].mean(axis=0) for hidden, tokens in rows])
    if hidden_dim:
        x = np.tanh(x @ own["hidden"] + own["hidden_bias"])
    expected = x @ own["output"] + own["output_bias"]
    np.testing.assert_allclose(model.apply(params, batch), expected, rtol=2e-5, atol=1e-6)


def test_trunk_is_that_of_pre_training():
    head = HeadConfig(num_outputs=2)
    params = jax.eval_shape(build_classifier(CRAMMED, head).init, jax.random.key(0))
    plain = jax.eval_shape(build(CRAMMED).init, jax.random.key(0))
    assert {k: v for k, v in params.items() if k != "task_head"} == plain


def test_losses_of_classes_and_of_a_score():
    for outputs in (3, 1):
        model, batch = build_classifier(CRAMMED, HeadConfig(num_outputs=outputs)), text_batch(3)
        params = model.init(jax.random.key(1))
        batch["weights"] = np.array([1, 1, 1, 0], np.float32)
        found = np.asarray(model.apply(params, batch))
        labels = batch["labels"]
        if outputs == 1:
            expected = np.square(found[:3, 0] - labels[:3])
        else:
            logits = found - np.log(np.exp(found).sum(axis=1, keepdims=True))
            expected = -logits[np.arange(3), labels[:3].astype(int)]
        total, count = model.losses(params, batch)["loss"]
        assert count == 3
        assert float(total) == pytest.approx(expected.sum(), rel=1e-5)
        each, counts = model.losses(params, batch, per_example=True)["loss"]
        np.testing.assert_allclose(each[:3], expected, rtol=1e-5)
        assert counts.tolist() == [1, 1, 1, 0]


def test_more_padding_changes_nothing():
    model = build_classifier(CRAMMED, HeadConfig(num_outputs=2, pooling="mean"))
    params, batch = model.init(jax.random.key(1)), text_batch(2)
    longer = batch | {"tokens": np.pad(batch["tokens"], ((0, 0), (0, 5)))}
    np.testing.assert_allclose(
        model.apply(params, longer), model.apply(params, batch), rtol=1e-4, atol=1e-6
    )


def test_heads_of_pre_training_get_no_gradient_and_all_else_does():
    model, batch = build_classifier(CRAMMED, HeadConfig(num_outputs=2)), text_batch(2)
    params = model.init(jax.random.key(1))
    grads = jax.grad(lambda p: model.losses(p, batch)["loss"][0])(params)
    for path, grad in jax.tree_util.tree_leaves_with_path(grads):
        name = path[0].key
        assert bool(jnp.any(grad != 0)) == (name != "head"), jax.tree_util.keystr(path)


def test_flops_count_the_head_and_not_that_of_pre_training():
    model = build_classifier(CRAMMED, HeadConfig(num_outputs=3, hidden_dim=8))
    flops = model.forward_flops({"tokens": (4, 12), "labels": (4,)})
    assert flops["task_head/hidden"] == 2 * 4 * 16 * 8
    assert flops["task_head/output"] == 2 * 4 * 8 * 3
    assert flops["token_embedding"] == 0


def test_vit_reads_its_images():
    model = build_classifier(VIT, HeadConfig(num_outputs=10))
    batch = {
        "images": np.zeros((2, 8, 8, 1), np.float32),
        "labels": np.array([1, 2], np.int32),
        "weights": np.ones(2, np.float32),
    }
    assert model.apply(model.init(jax.random.key(0)), batch).shape == (2, 10)


def test_what_cannot_be_is_an_error():
    with pytest.raises(UserError, match="T5 answers in words"):
        build_classifier(T5Config(), HeadConfig(num_outputs=2))
    with pytest.raises(UserError, match="pooling=last"):
        HeadConfig(num_outputs=2, pooling="last").check()
