"""Every registered experiment resolves at every scale, and its step can be traced."""

import jax
import jax.numpy as jnp
import pytest

from experiments.config import SCALES, config_hash, same_configuration, to_json
from experiments.data.objectives import batch_spec
from experiments.network import build_network
from experiments.optim import make_optimizer
from experiments.registry import all_experiments, resolve
from experiments.step import init_state, make_train_step


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", all_experiments())
def test_experiment_resolves_and_its_step_has_shapes(name, scale):
    experiment = resolve(name, scale)
    experiment.check()
    assert (experiment.name, experiment.scale) == (name, scale)
    model = build_network(experiment)
    tx = make_optimizer(experiment.optimizer, experiment.pruning)
    state = jax.eval_shape(lambda: init_state(model, tx, 0))
    spec = batch_spec(experiment.data, experiment.train.batch_size)
    batch = {key: jax.ShapeDtypeStruct(shape, dtype) for key, (shape, dtype) in spec.items()}
    step = make_train_step(model, tx, experiment.pruning, experiment.train.microbatches)
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    after, sums = jax.eval_shape(step, state, batch, scalar, scalar)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), state
    )
    assert {"loss", "nll", "accuracy", "grad_norm"} <= set(sums)


@pytest.mark.parametrize("name", all_experiments())
def test_docstring_says_what_it_is_and_how_to_run_it(name):
    text = all_experiments()[name].__doc__
    first = text.splitlines()[0]
    assert 20 < len(first) < 100
    for part in (f"Command: python -m experiments.launch --exp={name}", "Hardware:"):
        assert part in text
    for part in ("Time:", "Score:"):
        assert part in text


def test_hash_sees_every_change_but_seed_and_budget():
    import dataclasses

    base = resolve("dense_t5", "demo")
    same = dataclasses.replace(base, seed=5, budget="1h")
    other = dataclasses.replace(
        base, optimizer=dataclasses.replace(base.optimizer, peak_learning_rate=0.1)
    )
    assert config_hash(base) == config_hash(same) != config_hash(other)


def test_a_new_optional_field_changes_no_older_run():
    stored = to_json(resolve("sparse_t5_75", "demo"))
    newer = stored | {"new": None, "pruning": stored["pruning"] | {"new": None}}
    assert same_configuration(stored, newer)
    assert not same_configuration(stored, stored | {"new": 0})
    assert not same_configuration(stored, stored | {"pruning": None})
