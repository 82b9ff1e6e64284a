"""RHO loss: whose windows the proxy has seen, the same masks, its losses, and wrong proxies."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from experiments import registry
from experiments.data.batches import Batches
from experiments.data.prepare import prepare
from experiments.methods.rho import IRREDUCIBLE
from experiments.run import run_experiment
from experiments.run_folder import RunFolder
from models.errors import UserError


@pytest.fixture
def rho(tiny):
    settings = [
        "model.num_encoder_layers=1",
        "model.num_decoder_layers=1",
        "method.proxy_budget=8steps",
    ]
    return tiny("t5_rho", budget="6steps", settings=settings)


def test_parts_share_no_window_and_leave_none_out(rho):
    prepared = prepare(rho.data)
    parts = {}
    for part in ("target", "held_out"):
        data = dataclasses.replace(rho.data, train_part=part)
        batches = Batches(prepared, data, "train", 8)
        seen = [batches.windows(3, i) for i in range(batches.steps_per_epoch + 1)]
        parts[part] = set(np.concatenate(seen).tolist())
    total = len(prepared.array("train", "tokens"))
    assert not parts["target"] & parts["held_out"]
    assert parts["target"] | parts["held_out"] == set(range(total))
    assert len(parts["held_out"]) == -(-total // 5)


def test_a_window_has_the_same_masks_in_every_run(rho):
    prepared = prepare(rho.data)
    batches = Batches(prepared, rho.data, "train", 8)
    held = Batches(prepared, dataclasses.replace(rho.data, train_part="held_out"), "train", 8)
    windows = batches.windows(1, 2)
    first = batches.batch(1, 2)
    for name, rows in held.examples_of(windows).items():
        np.testing.assert_array_equal(first[name], rows)
    again = Batches(prepared, rho.data, "train", 4).examples_of(windows[3:5])
    np.testing.assert_array_equal(again["inputs"], first["inputs"][3:5])


@pytest.mark.slow
def test_losses_are_the_proxys_own_and_kept_by_window(rho, tmp_path):
    assert run_experiment(rho, str(tmp_path), "here", False) == 0
    proxy = rho.method.proxy_of(rho)
    folder = RunFolder(tmp_path, proxy).path
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["steps"] == 8 and summary["exp"] == "t5_rho_proxy"
    table = np.load(folder / "irreducible_losses.npy")
    batches = Batches(prepare(rho.data), rho.data, "train", 8)
    asked = np.unique(np.concatenate([batches.windows(0, i) for i in range(6)]))
    assert np.array_equal(np.flatnonzero(~np.isnan(table)), asked)
    assert not np.any(asked % 5 == 0)

    # The oracle: the proxy's evaluation of these examples, one by one.
    from experiments.checkpoint import Checkpoints
    from experiments.program import compile_program

    program = compile_program(proxy)
    with Checkpoints(folder / "checkpoints", keep=2) as checkpoints:
        state, _ = checkpoints.restore_latest(program.state_shapes, pytest.fail)
    for window in asked[:3]:
        total, count = program.model.losses(
            state["params"], batches.examples_of(np.array([window]))
        )["nll"]
        assert table[window] == pytest.approx(float(total / count), rel=1e-4)

    # Another budget of the target uses the same proxy.
    before = (folder / "summary.json").stat().st_mtime_ns
    longer = dataclasses.replace(rho, budget="8steps")
    assert run_experiment(longer, str(tmp_path), "here", False) == 0
    assert (folder / "summary.json").stat().st_mtime_ns == before
    config = json.loads((RunFolder(tmp_path, longer).path / "config.json").read_text())
    facts = config["before"]["proxy"]
    assert facts["free"] is True and pathlib.Path(facts["run"]) == folder

    # A proxy of other data is refused before anything compiles.
    given = dataclasses.replace(rho.method, proxy_run=str(folder))
    dataclasses.replace(rho, method=given).check()
    other = dataclasses.replace(rho.data, holdout_every=4)
    with pytest.raises(UserError, match=r"other data; data.holdout_every is 5, must be 4"):
        dataclasses.replace(rho, method=given, data=other).check()
    small = dataclasses.replace(rho.model, mlp_dim=48)
    with pytest.raises(UserError, match="another model"):
        dataclasses.replace(rho, method=given, model=small).check()


@pytest.mark.parametrize(
    ("name", "field", "value", "part"),
    [
        ("rho", "mega_batches", 1, "at least 2, or nothing is selected"),
        ("rho", "proxy_cost", "cheap", "not one of free, charged"),
        ("rho", "proxy_run", "/no/such/run", "not the folder of a finished run"),
        ("rho", "proxy_budget", "6", "the unit is missing"),
        ("selective_backprop", "beta", 0.0, "above 0 and at most 16"),
        ("selective_backprop", "history", 10, "at least the 64 candidates"),
        ("layer_dropping", "keep_floor", 0.0, "above 0 and at most 1"),
        ("layer_dropping", "draw_per", "epoch", "not one of microbatch, update"),
        ("layer_dropping", "name", "dropping", "follows from the experiment"),
    ],
)
def test_bad_settings_are_explained(name, field, value, part):
    experiment = registry.resolve(f"bert_{name}", "demo")
    method = dataclasses.replace(experiment.method, **{field: value})
    with pytest.raises(UserError, match=part):
        dataclasses.replace(experiment, method=method).check()


def test_methods_are_refused_for_models_they_do_not_fit():
    vit = registry.resolve("vit_baseline", "demo")
    for name in ("selective_backprop", "rho"):
        method = registry.resolve(f"bert_{name}", "demo").method
        with pytest.raises(UserError, match="does not fit"):
            dataclasses.replace(vit, method=method).check()
    post_norm = registry.resolve("bert_layer_dropping", "demo")
    model = dataclasses.replace(post_norm.model, pre_norm=False)
    with pytest.raises(UserError, match="needs a pre-norm model"):
        dataclasses.replace(post_norm, model=model).check()


def test_rho_needs_data_of_its_own():
    experiment = registry.resolve("bert_rho", "demo")
    data = dataclasses.replace(experiment.data, train_part=None)
    with pytest.raises(UserError, match=r"data\.holdout_every=5"):
        dataclasses.replace(experiment, data=data).check()


def test_batches_carry_the_losses_of_their_rows():
    from experiments.methods.irreducible import WithIrreducibleLosses

    class Numbers:
        batch_size = 4

        def windows(self, seed, i):
            return np.arange(4) + 4 * i

        def batch(self, seed, i, rows=slice(None)):
            return {"tokens": self.windows(seed, i)[rows]}

    table = np.arange(20, dtype=np.float32) / 10
    batch = WithIrreducibleLosses(Numbers(), table).batch(0, 2, slice(1, 3))
    np.testing.assert_allclose(batch[IRREDUCIBLE], [0.9, 1.0], rtol=1e-6)
