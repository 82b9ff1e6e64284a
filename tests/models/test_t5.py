"""T5 as a whole: size, initialisation, packing, precision, cost, and its options."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.api import build
from models.config import T5Config
from models.flops import flatten_paths
from models.functional import Module, Param
from models.t5 import shift_right
from tests.models.helpers import TINY_T5, assert_trees_near, random_params, random_tokens

BATCH = {
    "inputs": random_tokens((9, 6), TINY_T5.vocab_size, seed=0),
    "targets": random_tokens((4, 7), TINY_T5.vocab_size, seed=1),
}


def tiny(**changes):
    return build(dataclasses.replace(TINY_T5, **changes))


TINY = tiny()
PARAMS = random_params(TINY)
APPLY, LOSSES = jax.jit(TINY.apply), jax.jit(TINY.losses)


# Of a generator that compiles several times faster than the default one.
KEYS = [jax.random.key(seed, impl="rbg") for seed in range(2)]


def value_and_gradient(model):
    def mean_loss(params):
        total, count = model.losses(params, BATCH)["loss"]
        return total / count

    return jax.jit(jax.value_and_grad(mean_loss))(PARAMS)


@pytest.mark.parametrize(
    ("cfg", "published"),
    [
        # google/t5-v1_1-base, google/t5-v1_1-small and t5-base as they are released.
        (T5Config(), 247_577_856),
        (
            T5Config(
                model_dim=512,
                mlp_dim=1024,
                num_heads=6,
                num_encoder_layers=8,
                num_decoder_layers=8,
            ),
            76_961_152,
        ),
        (T5Config(mlp_dim=3072, activation="relu", gated=False, tied_logits=True), 222_903_552),
    ],
)
def test_published_number_of_parameters(cfg, published):
    params = jax.eval_shape(build(cfg).init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == published


def test_parameter_paths():
    attention = {"query", "key", "value", "out"}
    shared = {f"layers/attention/{name}" for name in attention} | {
        "relative_bias",
        "final_norm",
        "layers/attention_norm",
        "layers/mlp_norm",
        "layers/mlp/wi_gate",
        "layers/mlp/wi_up",
        "layers/mlp/wo",
    }
    cross = {f"layers/cross_attention/{name}" for name in attention} | {
        "layers/cross_attention_norm"
    }
    expected = {f"encoder/{name}" for name in shared}
    expected |= {f"decoder/{name}" for name in shared | cross}
    expected |= {"token_embedding", "logits"}
    assert set(flatten_paths(PARAMS)) == expected


def test_initialisation_is_the_published_one():
    cfg = dataclasses.replace(
        TINY_T5, vocab_size=300, model_dim=64, mlp_dim=100, num_heads=4, head_dim=24
    )
    params = flatten_paths(jax.jit(build(cfg).init)(KEYS[0]))
    deviations = {
        "token_embedding": 1.0,
        "logits": 64**-0.5,
        "relative_bias": 64**-0.5,
        "query": (64 * 24) ** -0.5,
        "key": 64**-0.5,
        "value": 64**-0.5,
        "out": (4 * 24) ** -0.5,
        "wi_gate": 64**-0.5,
        "wi_up": 64**-0.5,
        "wo": 100**-0.5,
    }
    for path, leaf in params.items():
        name = path.split("/")[-1]
        if name.endswith("norm"):
            np.testing.assert_array_equal(leaf, 1.0)
        else:  # five standard errors of a standard deviation
            assert abs(leaf.std() / deviations[name] - 1) < 5 / np.sqrt(2 * leaf.size), path
            assert abs(leaf.mean() / deviations[name]) < 5 / np.sqrt(leaf.size), path


def test_decoder_input_is_shifted_within_segments():
    targets, segments = np.array([[5, 6, 7, 8, 0]]), np.array([[1, 1, 2, 2, 0]])
    np.testing.assert_array_equal(shift_right(targets), [[0, 5, 6, 7, 8]])
    np.testing.assert_array_equal(shift_right(targets, segments)[:, :4], [[0, 5, 0, 7]])


def test_packed_equals_one_by_one():
    lengths = {"inputs": (9, 6), "targets": (4, 7)}
    packed = {}
    for name, each in lengths.items():
        pieces = [row[:length] for row, length in zip(BATCH[name], each, strict=True)]
        packed[name] = np.pad(np.concatenate(pieces), (0, 2))[None]
        packed[f"{name}_segment_ids"] = np.pad(np.repeat([1, 2], each), (0, 2))[None]
    logits, alone = jax.jit(TINY.apply)(PARAMS, packed)[0], APPLY(PARAMS, BATCH)
    np.testing.assert_allclose(logits[:4], alone[0, :4], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits[4:11], alone[1], rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing():
    wider = {name: np.pad(tokens, ((0, 0), (0, 3))) for name, tokens in BATCH.items()}
    assert_trees_near(LOSSES(PARAMS, wider), LOSSES(PARAMS, BATCH), 1e-6)


def test_the_decoder_does_not_see_what_comes_next():
    changed = BATCH | {"targets": BATCH["targets"].copy()}
    changed["targets"][:, 3] = 1 + changed["targets"][:, 3] % 22
    before, after = APPLY(PARAMS, BATCH), APPLY(PARAMS, changed)
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert not np.allclose(before[:, 4], after[:, 4])


def test_losses_per_example_add_up_to_those_of_the_batch():
    each = jax.jit(functools.partial(TINY.losses, per_example=True))(PARAMS, BATCH)
    np.testing.assert_array_equal(each["loss"][1], [4, 7])
    summed = {name: (total.sum(), count.sum()) for name, (total, count) in each.items()}
    assert_trees_near(summed, LOSSES(PARAMS, BATCH), 1e-6)


def test_z_loss_is_trained_on_and_nll_stays_plain():
    plain, z = LOSSES(PARAMS, BATCH), jax.jit(tiny(z_loss=0.1).losses)(PARAMS, BATCH)
    np.testing.assert_array_equal(plain["loss"], plain["nll"])
    np.testing.assert_allclose(z["nll"], plain["nll"], rtol=1e-6)
    logits = np.float64(APPLY(PARAMS, BATCH))[BATCH["targets"] != 0]
    expected = 0.1 * (np.log(np.exp(logits).sum(-1)) ** 2).sum()
    np.testing.assert_allclose(z["loss"][0] - z["nll"][0], expected, rtol=1e-4)


def test_without_a_key_nothing_is_dropped():
    dropping = jax.jit(tiny(dropout=0.5).losses)
    np.testing.assert_array_equal(
        dropping(PARAMS, BATCH)["loss"][0], LOSSES(PARAMS, BATCH)["loss"][0]
    )
    one, same, other = (
        dropping(PARAMS, BATCH, key=key)["loss"][0] for key in (KEYS[0], KEYS[0], KEYS[1])
    )
    assert one == same and one != other


def test_skipped_layers_equal_a_shallower_model():
    deep = tiny(num_encoder_layers=3, num_decoder_layers=2)
    params = random_params(deep)
    fewer = params | {
        stack: params[stack]
        | {"layers": jax.tree.map(lambda leaf, i=i: leaf[i], params[stack]["layers"])}
        for stack, i in (("encoder", np.array([0, 2])), ("decoder", np.array([1])))
    }
    np.testing.assert_allclose(
        jax.jit(deep.apply)(params, BATCH, keep=np.array([1.0, 0.0, 1.0, 0.0, 1.0])),
        jax.jit(tiny(num_decoder_layers=1).apply)(fewer, BATCH),
        rtol=1e-5,
        atol=1e-5,
    )


def test_unrolled_and_recomputed_layers_have_the_same_gradients():
    assert_trees_near(
        value_and_gradient(tiny(scan_layers=False, remat="dots")), value_and_gradient(TINY), 1e-5
    )


def test_bfloat16_computes_near_float32_and_keeps_parameters_and_losses_float32():
    model = tiny(compute_dtype="bfloat16")
    total, _ = jax.jit(model.losses)(PARAMS, BATCH)["loss"]
    assert total.dtype == np.float32
    assert 1e-5 < abs(total / LOSSES(PARAMS, BATCH)["loss"][0] - 1) < 2e-2
    gradients = jax.eval_shape(
        jax.grad(lambda params: model.losses(params, BATCH)["loss"][0]), PARAMS
    )
    assert {leaf.dtype for leaf in jax.tree.leaves(gradients)} == {np.dtype("float32")}


def test_parameters_have_the_dtype_asked_for():
    params = jax.eval_shape(tiny(param_dtype="bfloat16").init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}


def test_an_id_outside_the_vocabulary_gives_nan():
    wrong = BATCH | {"inputs": np.full_like(BATCH["inputs"], TINY_T5.vocab_size)}
    assert np.isnan(LOSSES(PARAMS, wrong)["loss"][0])


class Doubling(Module):
    def __init__(self, key):
        self.factor = Param(jnp.full((1,), 2.0))

    def __call__(self, x_BTD, *, key=None):
        return x_BTD * self.factor[...][None, None]


def test_the_feedforward_block_is_an_argument():
    model = build(TINY_T5, make_mlp=Doubling)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert params["encoder"]["layers"]["mlp"]["factor"].shape == (2, 1)
    assert jax.eval_shape(model.apply, params, BATCH).shape == (2, 7, TINY_T5.vocab_size)


@pytest.mark.parametrize("tied_logits", [False, True])
def test_flops_are_those_that_the_compiler_counts(tied_logits):
    # XLA counts a scanned layer once, hence unrolled; wide, so that products are nearly everything.
    cfg = T5Config(
        vocab_size=500,
        model_dim=320,
        mlp_dim=640,
        num_heads=4,
        head_dim=96,
        num_encoder_layers=1,
        num_decoder_layers=3,
        relative_buckets=4,
        tied_logits=tied_logits,
        scan_layers=False,
    )
    model = build(cfg)
    shapes = {"inputs": (2, 96), "targets": (2, 16)}
    batch = {name: jax.ShapeDtypeStruct(shape, "int32") for name, shape in shapes.items()}
    params = jax.eval_shape(model.init, jax.random.key(0))
    counted = jax.jit(model.apply).lower(params, batch).cost_analysis()["flops"]
    flops = model.forward_flops(shapes)
    assert set(flops) == {
        path for path, leaf in flatten_paths(params).items() if leaf.ndim - ("/layers/" in path) > 1
    } | {"attention_scores"}
    assert 0.99 < sum(flops.values()) / counted < 1.0
    assert (flops["token_embedding"] > 0) == tied_logits


def test_kernels_are_told_for_every_attention_block():
    blocks = ("encoder/attention", "decoder/attention", "decoder/cross_attention")
    shapes = {name: tokens.shape for name, tokens in BATCH.items()}
    assert TINY.attention_kernels(shapes) == dict.fromkeys(blocks, "xla")
