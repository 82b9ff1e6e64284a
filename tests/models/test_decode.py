"""Generating with T5's cache against running the whole model for every token."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.api import build
from models.decode import make_generate
from models.errors import UserError
from models.functional import Module, Param, functional
from models.t5 import T5
from models.t5_cache import decode_step, empty_past, read_inputs
from tests.models.helpers import TINY_T5, assert_trees_near, random_params, random_tokens

T = 8  # tokens to generate
# So few tokens that some sequences end early.
CFG = dataclasses.replace(TINY_T5, vocab_size=6, num_decoder_layers=3)
INPUTS = random_tokens((9, 6, 2, 13), CFG.vocab_size)


CFGS = {
    "v1.1": CFG,
    "v1.0": dataclasses.replace(
        CFG, gated=False, activation="relu", tied_logits=True, scan_layers=False
    ),
    "bfloat16": dataclasses.replace(CFG, compute_dtype="bfloat16"),
}


@functools.cache
def whole_model(name):
    model = build(CFGS[name])
    return random_params(model, seed=1), jax.jit(model.apply)


@pytest.mark.parametrize(
    ("name", "tolerance"), [("v1.1", 1e-5), ("v1.0", 1e-5), ("bfloat16", 2e-2)]
)
def test_steps_give_the_logits_of_the_whole_model(name, tolerance):
    (params, apply), cfg, inputs = whole_model(name), CFGS[name], INPUTS[:2]
    targets_XT = random_tokens((T,) * 4, cfg.vocab_size, seed=1)
    expected_XTV = apply(params, {"inputs": np.repeat(inputs, 2, axis=0), "targets": targets_XT})

    _, call = functional(lambda key: T5(key, cfg))
    sizes = {"batch_size": 2, "num_beams": 2, "max_length": T}
    memory = jax.jit(lambda params: call(params, read_inputs, inputs))(params)
    past = call(params, lambda model: empty_past(model, **sizes))
    step = jax.jit(lambda *args: call(params, decode_step, *args))
    for position in range(T):
        last_X = targets_XT[:, position - 1] if position else np.zeros(4, np.int32)
        logits_BNV, past = step(memory, past, last_X.reshape(2, 2), jnp.int32(position))
        assert logits_BNV.dtype == np.float32
        assert_trees_near(logits_BNV.reshape(4, -1), expected_XTV[:, position], tolerance)
    assert past.keys_LBNTHK.shape == (3, 2, 2, T, 2, 4)
    assert {leaf.dtype for leaf in (*past, *memory[:2])} == {jnp.dtype(cfg.compute_dtype)}


@pytest.mark.parametrize("name", ["v1.1", "v1.0"])
def test_greedy_equals_the_whole_model_run_again_for_every_token(name):
    params, apply = whole_model(name)
    expected = np.zeros((4, T), np.int32)
    for t in range(T):
        choice = apply(params, {"inputs": INPUTS, "targets": expected})[:, t].argmax(axis=-1)
        expected[:, t] = np.where((expected == 1).any(axis=1), 0, choice)
    assert {(row == 1).any() for row in expected} == {True, False}
    ours = jax.jit(make_generate(CFGS[name], max_length=T))(params, {"inputs": INPUTS})
    assert ours.dtype == np.int32
    np.testing.assert_array_equal(ours, expected)


class Counting(Module):
    """A feedforward block that says when it runs."""

    ran: ClassVar[list[int]] = []

    def __init__(self, key):
        self.factor = Param(jnp.full((1,), 0.5))

    def __call__(self, x_BTD, *, key=None):
        jax.debug.callback(lambda: self.ran.append(x_BTD.shape[1]))
        return x_BTD * self.factor[...][None, None]


def test_the_encoder_runs_once_and_its_input_is_not_repeated_for_beams():
    params = random_params(build(CFG, Counting))
    generate = make_generate(CFG, Counting, max_length=3, num_beams=4)
    jax.jit(generate)(params, {"inputs": INPUTS})
    jax.effects_barrier()
    assert sorted(Counting.ran) == [4] * 3 * 3 + [13] * 2  # layers x steps, and encoder layers


@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_loops_keep_bfloat16(num_beams):
    params, _ = whole_model("bfloat16")
    generate = make_generate(CFGS["bfloat16"], max_length=T, num_beams=num_beams)
    tokens = jax.eval_shape(generate, params, {"inputs": INPUTS})
    assert (tokens.shape, tokens.dtype) == ((4, T), np.int32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length=0: must be at least 1"),
        ({"max_length": 3, "num_beams": 0}, "num_beams=0: must be at least 1"),
    ],
)
def test_numbers_that_cannot_work(options, message):
    with pytest.raises(UserError, match=message):
        make_generate(CFG, **options)


def test_packed_inputs_are_refused():
    generate = make_generate(CFG, max_length=3)
    with pytest.raises(UserError, match="inputs_segment_ids"):
        generate({}, {"inputs": INPUTS, "inputs_segment_ids": INPUTS})
