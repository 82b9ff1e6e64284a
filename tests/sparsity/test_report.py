"""Sparsity asked and reached."""

import jax.numpy as jnp
import numpy as np
import optax

from sparsity.config import PruningConfig
from sparsity.prune import prune
from sparsity.report import current_sparsity, summary
from tests.sparsity.contract import HALF, Trainer


def test_summary_of_a_finished_run():
    cfg = PruningConfig(rule="magnitude", sparsity=0.75, update_every_steps=5)
    params, opt = Trainer(cfg).run().end
    found = summary(cfg, params, opt)
    assert found["overall"] == found["target"] == 0.75
    assert found["off_by"] == 0
    assert found["by_path"]["head/0"] == {
        "asked": 0.75,
        "reached": 0.75,
        "zeros": 96,
        "size": 128,
        "off_by": 0,
    }
    assert found["pattern"] == "unstructured"


def test_current_sparsity_is_that_of_the_masks_at_every_step():
    cfg = PruningConfig(rule="magnitude", sparsity=0.75, update_every_steps=5)
    run = Trainer(cfg).run()
    assert current_sparsity(run.start[1]) == 0
    half_way = np.mean(np.concatenate([~m[HALF - 1].ravel() for m in run.masks.values()]))
    np.testing.assert_allclose(current_sparsity(run.middle[1]), half_way, rtol=1e-6)
    assert 0 < half_way < 0.75
    np.testing.assert_allclose(current_sparsity(run.end[1]), 0.75)


def test_summary_says_along_which_axis_groups_run():
    params = {"a": jnp.ones((4, 8))}
    for axis in ("contraction", "output"):
        cfg = PruningConfig(rule="magnitude", sparsity=0.5, pattern="2:4", nm_axis=axis)
        found = summary(cfg, params, prune(optax.sgd(0.1), cfg).init(params))
        assert found["pattern"] == f"2:4 along the {axis} axis"


def test_a_run_that_has_not_finished_says_by_how_much():
    cfg = PruningConfig(rule="magnitude", sparsity=0.5)
    params = {"layers": {"a": jnp.ones((2, 4, 4))}, "b": jnp.ones((4, 6))}
    opt = prune(optax.sgd(0.1), cfg).init(params)
    opt.masks["layers/a"] = opt.masks["layers/a"].at[1, 0, :3].set(False)
    opt.masks["b"] = opt.masks["b"].at[0, 0].set(False)
    params["layers"]["a"] = params["layers"]["a"].at[1, 0, :3].set(0.0)
    found = summary(cfg, params, opt)
    # Layer 0 misses 8 zeros, layer 1 five; the weight under b's mask is not zero, so it is no zero.
    assert found["by_path"]["layers/a"]["off_by"] == 8
    assert found["by_path"]["layers/a"]["zeros"] == 3
    assert found["by_path"]["b"]["zeros"] == 0
    assert found["off_by"] == 12
    assert (found["lowest"], found["highest"]) == ("b", "layers/a")


def test_global_has_a_target_for_the_whole_only():
    cfg = PruningConfig(
        rule="magnitude", sparsity=0.75, distribution="global", update_every_steps=5
    )
    params, opt = Trainer(cfg).run().end
    found = summary(cfg, params, opt)
    assert found["overall"] == found["target"] == 0.75
    assert found["off_by"] == 0
    assert found["by_path"]["head/0"]["asked"] is None
    assert found["by_path"]["head/0"]["reached"] != 0.75


def test_dense_runs_have_none():
    params = {"a": jnp.ones((2, 2))}
    assert summary(PruningConfig(), params, optax.sgd(0.1).init(params)) is None
    assert current_sparsity(optax.sgd(0.1).init(params)) == 0
