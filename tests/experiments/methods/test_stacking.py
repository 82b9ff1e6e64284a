"""Layer stacking: what grows, what the optimiser keeps, continuity, and resuming at boundaries."""

import dataclasses
import json
import os
import pathlib
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import registry, train
from experiments.checkpoint import Checkpoints
from experiments.methods.grow import grow
from experiments.methods.stacking import Stacking
from experiments.optim import make_optimizer
from experiments.run import EXIT_INTERRUPTED, run_experiment
from experiments.run_folder import RunFolder
from experiments.stages import Stages
from experiments.step import init_state
from models.api import build
from models.config import BertConfig
from models.errors import UserError
from sparsity.plan import named_leaves

SHALLOW = BertConfig(
    vocab_size=40,
    max_length=8,
    model_dim=8,
    mlp_dim=16,
    num_heads=2,
    num_layers=2,
    pre_norm=True,
)
DEEP = dataclasses.replace(SHALLOW, num_layers=4)
BATCH = {
    "tokens": np.random.default_rng(0).integers(3, 40, (4, 8), dtype=np.int32),
    "masked_positions": np.tile(np.array([1, 4], np.int32), (4, 1)),
    "masked_labels": np.random.default_rng(1).integers(3, 40, (4, 2), dtype=np.int32),
    "masked_weights": np.ones((4, 2), np.float32),
}


def shallow_state():
    """A state with moments that are not zero."""
    tx = make_optimizer(registry.resolve("bert_baseline", "demo").optimizer, None)
    state = init_state(build(SHALLOW), tx, 0)
    filled = jax.tree.map(
        lambda leaf: leaf + 1 if leaf.dtype == jnp.float32 else leaf + 7, state["opt"]
    )
    return state | {"opt": filled}, tx


def oracle(leaf, factor, order):
    layers = list(np.asarray(leaf))
    if order == "append":
        return np.stack(layers * factor)
    return np.stack([layer for layer in layers for _ in range(factor)])


@pytest.mark.parametrize("order", ["append", "interleave"])
@pytest.mark.parametrize("policy", ["copied", "fresh", "reset"])
def test_growth_against_a_loop(order, policy):
    state, tx = shallow_state()
    grown = grow(Stacking(order=order, optimizer_state=policy), state, 2, tx.init)
    for path, leaf in named_leaves(state["params"]):
        after = dict(named_leaves(grown["params"]))[path]
        expected = oracle(leaf, 2, order) if "layers" in path.split("/") else np.asarray(leaf)
        np.testing.assert_array_equal(after, expected, err_msg=path)
    before = dict(named_leaves(state["opt"]))
    new_layers = {"append": [2, 3], "interleave": [1, 3]}[order]
    checked = 0
    for path, leaf in named_leaves(grown["opt"]):
        old = np.asarray(before[path])
        if policy == "reset":
            np.testing.assert_array_equal(leaf, np.zeros_like(leaf), err_msg=path)
        elif "layers" not in path.split("/"):
            np.testing.assert_array_equal(leaf, old, err_msg=path)
        else:
            expected = oracle(old, 2, order)
            if policy == "fresh":
                expected[new_layers] = 0
            np.testing.assert_array_equal(leaf, expected, err_msg=path)
            checked += 1
    assert checked > 10 or policy == "reset"
    assert grown["step"] is state["step"] and grown["key"] is state["key"]


def loss_of(cfg, params):
    total, count = build(cfg).losses(params, BATCH)["loss"]
    return float(total / count)


def test_loss_is_continuous_where_new_layers_add_nothing():
    """A pre-norm layer with output projections of 0 is the identity."""
    state, tx = shallow_state()
    before = loss_of(SHALLOW, state["params"])
    preserved = grow(Stacking(new_outputs="zero"), state, 2, tx.init)
    assert loss_of(DEEP, preserved["params"]) == pytest.approx(before, rel=1e-6)
    # Copies as published change the function, unless what is copied adds nothing itself.
    assert loss_of(DEEP, grow(Stacking(), state, 2, tx.init)["params"]) != pytest.approx(
        before, rel=1e-6
    )
    layers = state["params"]["encoder"]["layers"]
    still = jax.tree.map(lambda leaf: leaf, state["params"])
    still["encoder"]["layers"] = layers | {
        "attention": layers["attention"]
        | {n: jnp.zeros_like(layers["attention"][n]) for n in ("out", "out_bias")},
        "mlp": layers["mlp"] | {n: jnp.zeros_like(layers["mlp"][n]) for n in ("wo", "wo_bias")},
    }
    for order in ("append", "interleave"):
        grown = grow(Stacking(order=order), state | {"params": still}, 2, tx.init)
        assert loss_of(DEEP, grown["params"]) == pytest.approx(loss_of(SHALLOW, still), rel=1e-6)


def test_stages_have_the_published_depths_and_shares():
    for family, fields in (
        ("bert", {"num_layers": [4, 8, 16]}),
        ("t5", {"num_encoder_layers": [3, 6, 12], "num_decoder_layers": [3, 6, 12]}),
    ):
        stages = Stages(registry.resolve(f"{family}_stacking", "paper")).specs
        assert [stage.end for stage in stages] == [0.125, 0.30, 1.0]
        for field, depths in fields.items():
            assert [getattr(stage.experiment.model, field) for stage in stages] == depths


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"grow_at": (0.3, 0.125)}, "rising"),
        ({"grow_at": (0.125, 1.2)}, "below 1"),
        ({"grow_at": (0.3,)}, "need 2 points of growth"),
        ({"depth_fractions": (0.1, 0.5, 1.0)}, "0.4 layers, not a whole number"),
        ({"depth_fractions": (0.75, 1.0), "grow_at": (0.5,)}, "no multiple of the 3"),
        ({"depth_fractions": (0.25, 0.5), "grow_at": (0.5,)}, "the last stage has all layers"),
        ({"order": "sideways"}, "not one of append, interleave"),
        ({"optimizer_state": "kept"}, "not one of copied, fresh, reset"),
    ],
)
def test_bad_settings_are_explained_before_anything_compiles(changes, part):
    experiment = registry.resolve("bert_stacking", "demo")
    method = dataclasses.replace(experiment.method, **changes)
    with pytest.raises(UserError, match=part):
        dataclasses.replace(experiment, method=method).check()


def stopped_at(monkeypatch, step):
    """Sends this process a SIGTERM while the step of this number is being computed."""
    hold = train.Meter.hold

    def hold_and_stop(self, done, sums):
        hold(self, done, sums)
        if done == step:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(train.Meter, "hold", hold_and_stop)


def final_state(experiment, folder):
    stages = Stages(experiment)
    with Checkpoints(folder / "checkpoints", keep=2) as checkpoints:
        state, _ = checkpoints.restore_latest(stages.last.state_shapes, pytest.fail)
    return dict(named_leaves(state))


@pytest.mark.slow
def test_resumes_bit_for_bit_on_either_side_of_a_boundary(tiny, tmp_path, monkeypatch):
    settings = [
        "model.num_encoder_layers=4",
        "model.num_decoder_layers=4",
        "model.dropout=0.1",
        "train.log_every_steps=1",
        "train.num_checkpoints=1",
    ]
    experiment = tiny("t5_stacking", budget="24steps", settings=settings)
    undisturbed = RunFolder(tmp_path / "a", experiment).path
    assert run_experiment(experiment, str(tmp_path / "a"), "here", False) == 0
    config = json.loads((undisturbed / "config.json").read_text())
    boundary = config["plan"]["stages"][2]["first_step"]
    expected = final_state(experiment, undisturbed)
    lines = (undisturbed / "metrics.jsonl").read_text()
    for stop in (boundary - 1, boundary, boundary + 1):
        workdir = tmp_path / str(stop)
        folder = RunFolder(workdir, experiment).path
        # The same plan, whatever this machine is busy with now.
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        with monkeypatch.context() as patch:
            stopped_at(patch, stop)
            assert run_experiment(experiment, str(workdir), "here", False) == EXIT_INTERRUPTED
        kept = [p.name for p in pathlib.Path(folder / "checkpoints").iterdir() if p.name.isdigit()]
        assert kept == [str(stop)]
        assert run_experiment(experiment, str(workdir), "here", False) == 0
        for name, leaf in final_state(experiment, folder).items():
            one, other = (
                jax.random.key_data(x) if name == "key" else x for x in (leaf, expected[name])
            )
            np.testing.assert_array_equal(one, other, err_msg=f"{name}, stopped at {stop}")
        losses = [
            [json.loads(line)["loss"] for line in text.splitlines()]
            for text in ((folder / "metrics.jsonl").read_text(), lines)
        ]
        assert losses[0] == losses[1]
