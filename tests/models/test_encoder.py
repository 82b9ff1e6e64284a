"""What holds for BERT and ViT alike: how layers run, dropout, other feedforward blocks, FLOPs."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from models.api import build, build_encoder
from models.functional import Module, Param
from tests.models.encoder_cases import CASES
from tests.models.helpers import assert_trees_near, random_params

each_case = pytest.mark.parametrize(("cfg", "batch"), CASES.values(), ids=list(CASES))


@each_case
def test_scanned_equals_unrolled(cfg, batch):
    cfg = replace(cfg, num_layers=2)
    params = random_params(build(cfg))
    scanned, unrolled = (
        jax.jit(build(replace(cfg, scan_layers=scan)).apply)(params, batch)
        for scan in (True, False)
    )
    assert_trees_near(scanned, unrolled, 1e-5)


@each_case
def test_skipped_layers_are_as_if_they_were_not_there(cfg, batch):
    params = random_params(build(cfg))
    skipping = jax.jit(build(cfg).apply)(params, batch, keep=np.array([1.0, 0.0, 1.0]))
    shallow = dict(params, encoder=dict(params["encoder"]))
    shallow["encoder"]["layers"] = jax.tree.map(lambda x: x[[0, 2]], params["encoder"]["layers"])
    assert_trees_near(
        skipping, jax.jit(build(replace(cfg, num_layers=2)).apply)(shallow, batch), 1e-5
    )


@each_case
@pytest.mark.parametrize(("rate", "seed"), [(0.0, 1), (0.5, None), (0.5, 1)])
def test_dropout_needs_a_rate_and_a_key(cfg, batch, rate, seed):
    model = build(replace(cfg, dropout=rate))
    key = None if seed is None else jax.random.key(seed)
    program = jax.make_jaxpr(model.apply)(random_params(model), batch, key=key)
    # One draw for the embedding, and in the body of the scan one for each of attention's weights,
    # attention's output and the feedforward block's.
    assert str(program).count("random_bits[") == (4 if rate and key is not None else 0)


def test_dropout_follows_its_key():
    cfg, batch = CASES["vit"]
    model = build(replace(cfg, dropout=0.5))
    params, apply = random_params(model), jax.jit(model.apply)
    one, same, other = (apply(params, batch, key=jax.random.key(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


class Scale(Module):
    """A feedforward block with one vector of its own."""

    def __init__(self, key):
        self.factor = Param(jax.random.normal(key, (6,)))

    def __call__(self, x_BTD, *, key=None):
        return x_BTD * self.factor[...][None, None]


def test_the_feedforward_block_is_an_argument():
    cfg, batch = CASES["bert"]
    model = build(cfg, make_mlp=Scale)
    params = random_params(model)
    assert jax.tree.map(np.shape, params["encoder"]["layers"]["mlp"]) == {"factor": (3, 6)}
    ours = jax.jit(build_encoder(cfg, make_mlp=Scale))
    changed = jax.tree.map(np.copy, params)
    changed["encoder"]["layers"]["mlp"]["factor"] *= 2
    assert not np.allclose(ours(params, batch).hidden_BTD, ours(changed, batch).hidden_BTD)


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_states_have_the_compute_dtype_and_logits_are_float32(name):
    cfg, batch = CASES[name]
    params = random_params(build(cfg))
    low = replace(cfg, compute_dtype="bfloat16")
    assert jax.eval_shape(build_encoder(low), params, batch).hidden_BTD.dtype == jnp.bfloat16
    logits = jax.jit(build(low).apply)(params, batch)
    assert logits.dtype == np.float32
    assert_trees_near(logits, jax.jit(build(cfg).apply)(params, batch), 0.03)


def product_flops(jaxpr) -> int:
    """Adds up 2 x size of the result x contracted size over all products in a program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            result = equation.outvars[0].aval.shape
            total += 2 * math.prod(result) * math.prod(left[axis] for axis in contracted)
        for inner in jaxprs_in_params(equation.params):
            total += product_flops(inner)
    return total


@each_case
def test_forward_flops_counts_every_product(cfg, batch):
    model = build(replace(cfg, scan_layers=False))
    flops = model.forward_flops({name: array.shape for name, array in batch.items()})
    jaxpr = jax.make_jaxpr(model.apply)(random_params(model), batch).jaxpr
    assert sum(flops.values()) == product_flops(jaxpr)


@pytest.mark.parametrize("name", ["crammed", "vit"])
def test_forward_flops_is_nearly_all_that_xla_counts(name):
    cfg, _ = CASES[name]
    wide = {"model_dim": 256, "mlp_dim": 512, "num_layers": 2, "scan_layers": False}
    if name == "vit":
        cfg = replace(cfg, image_size=32, patch_size=4, **wide)
        shapes = {"images": (2, 32, 32, 3)}
    else:
        cfg = replace(cfg, vocab_size=512, max_length=64, **wide)
        shapes = {"tokens": (2, 64), "masked_positions": (2, 16)}
    model = build(cfg)
    batch = {
        name: jax.ShapeDtypeStruct(shape, np.float32 if name == "images" else np.int32)
        for name, shape in shapes.items()
    }
    lowered = jax.jit(model.apply).lower(jax.eval_shape(model.init, jax.random.key(0)), batch)
    counted = lowered.cost_analysis()["flops"]
    assert 0.95 * counted < sum(model.forward_flops(shapes).values()) < counted


@each_case
def test_attention_kernels_names_the_block(cfg, batch):
    shapes = {name: array.shape for name, array in batch.items()}
    assert build(cfg).attention_kernels(shapes) == {"encoder/attention": "xla"}
