"""Modules become pure functions over nested plain dicts."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import models
from models.functional import Module, Param, functional, stack


class Layer(Module):
    def __init__(self, key):
        self.kernel = Param(jax.random.normal(key, (3, 3)))


class Net(Module):
    def __init__(self, key):
        self.layers = stack(Layer, key, 4)
        self.scale = Param(jnp.ones(3))

    def __call__(self, x):
        for kernel in self.layers.kernel[...]:
            x = x @ kernel
        return x * self.scale[...][None]


def test_parameters_are_plain_dicts_under_attribute_names():
    init, _ = functional(Net)
    params = init(jax.random.key(0))
    assert type(params) is dict and type(params["layers"]) is dict
    assert jax.tree.map(jnp.shape, params) == {"layers": {"kernel": (4, 3, 3)}, "scale": (3,)}
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(params))


def test_stacked_layers_start_different_and_depend_on_the_key_alone():
    init, _ = functional(Net)
    one, two, other = (init(jax.random.key(seed))["layers"]["kernel"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    distinct = {kernel.tobytes() for kernel in np.concatenate([one, other])}
    assert len(distinct) == 8


def test_apply_uses_the_given_parameters_and_changes_nothing():
    init, apply = functional(Net)
    params = init(jax.random.key(0))
    before = jax.tree.map(np.array, params)
    doubled = params | {"scale": 2 * params["scale"]}
    x = np.ones((1, 3), np.float32)
    expected = x
    for kernel in before["layers"]["kernel"]:
        expected = expected @ kernel
    np.testing.assert_allclose(apply(params, Net.__call__, x), expected, rtol=1e-5)
    np.testing.assert_allclose(apply(doubled, Net.__call__, x), 2 * expected, rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, params, before)


def test_only_one_file_knows_flax():
    sources = Path(models.__file__).parent.glob("*.py")
    users = [p.name for p in sources if re.search(r"^\s*(from|import) flax", p.read_text(), re.M)]
    assert users == ["functional.py"]
