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


def equations(jaxpr, primitive: str) -> list:
    """Returns the equations with a primitive, in a program and in all that it calls."""
    found = [equation for equation in jaxpr.eqns if equation.primitive.name == primitive]
    for equation in jaxpr.eqns:
        for inner in jaxprs_in_params(equation.params):
            found += equations(inner, primitive)
    return found


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
    # The embedding; and in the body of the scan attention's weights and what both blocks return.
    draws = 4 if rate and key is not None else 0
    assert len(equations(program.jaxpr, "random_bits")) == draws


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


@each_case
def test_states_have_the_compute_dtype_and_logits_are_float32(cfg, batch):
    params, low = random_params(build(cfg)), replace(cfg, compute_dtype="bfloat16")
    encoded = jax.eval_shape(build_encoder(low), params, batch)
    assert encoded.hidden_BTD.dtype == encoded.pooled_BD.dtype == jnp.bfloat16
    assert jax.eval_shape(build(low).apply, params, batch).dtype == np.float32


def test_bfloat16_is_near_float32():
    cfg, batch = CASES["bert"]
    params = random_params(build(cfg))
    low, high = (
        jax.jit(build(replace(cfg, compute_dtype=dtype)).apply)(params, batch)
        for dtype in ("bfloat16", "float32")
    )
    assert_trees_near(low, high, 0.03)


@each_case
def test_forward_flops_counts_every_product(cfg, batch):
    model = build(replace(cfg, scan_layers=False))
    flops = model.forward_flops({name: array.shape for name, array in batch.items()})
    program = jax.make_jaxpr(model.apply)(random_params(model), batch)
    counted = 0
    for product in equations(program.jaxpr, "dot_general"):
        (contracted, _), _ = product.params["dimension_numbers"]
        length = math.prod(product.invars[0].aval.shape[axis] for axis in contracted)
        counted += 2 * product.outvars[0].aval.size * length
    assert sum(flops.values()) == counted


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
