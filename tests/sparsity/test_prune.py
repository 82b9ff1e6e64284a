"""The pruning wrapper: against a NumPy simulation, and its seams with other transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparsity.config import PruningConfig
from sparsity.plan import named_leaves
from sparsity.prune import apply_masks, forward_params, masks_of, prune, replace_masks
from tests.sparsity.contract import Trainer, adam, small_tree

SCHEDULE = {"start_fraction": 0.2, "end_fraction": 0.8, "update_every_steps": 3}


def simulate(weights, gradient, cfg: PruningConfig, steps: int, rate: float, ste: bool = False):
    """Plain SGD on one matrix with gradual pruning by a full sort, step by step, in NumPy."""
    mask, masks = np.ones(weights.shape, bool), []
    target = int(np.floor(cfg.sparsity * weights.size + 0.5))
    settled = -1.0
    for step in range(steps):
        after = np.float32(step + 1) / np.float32(steps)
        visible = np.where(mask, weights, 0)
        grads = gradient(visible, step)
        start, end = np.float32(cfg.start_fraction), np.float32(cfg.end_fraction)
        inside = settled < end and after >= start
        if inside and (step % cfg.update_every_steps == 0 or settled < start or after >= end):
            t = np.clip((after - start) / (end - start), 0, 1)
            pruned = (
                target if after >= end else int(np.round(np.float32(1 - (1 - t) ** 3) * target))
            )
            score = np.abs(weights) if ste else np.where(mask, np.abs(weights), -1)
            if cfg.rule == "saliency":
                score = np.where(mask, np.abs(weights * grads), -1)
            order = np.argsort(-score, axis=None, kind="stable")
            mask = np.zeros(weights.size, bool)
            mask[order[: weights.size - pruned]] = True
            mask = mask.reshape(weights.shape)
        weights = weights - rate * grads * (1 if ste and after < end else mask)
        if not ste or after >= end:
            weights = np.where(mask, weights, 0).astype(np.float32)
        masks.append(mask)
        settled = after
    return weights, np.stack(masks)


@pytest.mark.parametrize("rule", ["magnitude", "magnitude_ste", "saliency"])
def test_masks_and_weights_follow_a_numpy_simulation(rule):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(12, 10)).astype(np.float32)
    goals = rng.normal(size=(40, 12, 10)).astype(np.float32)
    cfg = PruningConfig(rule=rule, sparsity=0.7, **SCHEDULE)
    tx = prune(optax.sgd(0.05), cfg)
    params = {"w": jnp.asarray(start)}
    opt = tx.init(params)

    @jax.jit
    def step(params, opt, i):
        grads = jax.tree.map(lambda w: w - jnp.asarray(goals)[i], forward_params(cfg, params, opt))
        updates, opt = tx.update(grads, opt, params, next_progress=(i + 1).astype(jnp.float32) / 40)
        return optax.apply_updates(params, updates), opt

    masks = []
    for i in range(40):
        params, opt = step(params, opt, jnp.int32(i))
        masks.append(np.asarray(masks_of(opt)["w"]))
    weights, expected = simulate(
        start, lambda w, i: w - goals[i], cfg, 40, 0.05, ste=rule == "magnitude_ste"
    )
    np.testing.assert_array_equal(np.stack(masks), expected)
    np.testing.assert_allclose(params["w"], weights, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("progress", "drop"), [(0.5, 0.2), (2 / 3, 0.1), (1.0, 0.0)])
def test_rigl_drops_the_smallest_weights_and_grows_the_largest_gradients(progress, drop):
    rng = np.random.default_rng(4)
    fields = {"start_fraction": 0.0, "end_fraction": 1.0, "drop_fraction": 0.4}
    cfg = PruningConfig(rule="rigl", sparsity=0.6, schedule="constant", **fields)
    tx = prune(optax.sgd(0.0), cfg, jax.random.key(0))
    params = {"w": jnp.asarray(rng.normal(size=(10, 10)), jnp.float32)}
    opt = tx.init(params)
    params = apply_masks(params, opt)
    grads = rng.normal(size=(10, 10)).astype(np.float32)
    _, after = tx.update(
        {"w": jnp.asarray(grads)}, opt, params, next_progress=jnp.float32(progress)
    )
    weights, mask = np.abs(params["w"]).ravel(), np.asarray(opt.masks["w"]).ravel()
    # 40 are kept; of them 1 − drop survive by |w|, the rest of the 40 places go by |g|.
    survivors = np.argsort(np.where(mask, -weights, 1))[: round(40 * (1 - drop))]
    score = np.abs(grads).ravel()
    score[survivors] = np.inf
    expected = np.zeros(100, bool)
    expected[np.argsort(-score)[:40]] = True
    np.testing.assert_array_equal(np.asarray(after.masks["w"]).ravel(), expected)
    assert drop == 0 or (expected & ~mask).any()


def test_rule_none_is_the_inner_optimiser():
    params, grads = small_tree(), jax.tree.map(jnp.ones_like, small_tree())
    wrapped, plain = prune(adam(), PruningConfig()), adam()

    @jax.jit
    def both(params, grads):
        ours = wrapped.update(grads, wrapped.init(params), params, next_progress=1.0, key=None)
        return ours, plain.update(grads, plain.init(params), params)

    (left, state), (right, _) = both(params, grads)
    jax.tree.map(np.testing.assert_array_equal, left, right)
    assert masks_of(state) == {}
    assert forward_params(PruningConfig(), params, state) is params


def test_inner_sees_masked_gradients_the_progress_and_the_masks():
    seen = {}

    def update(grads, state, params=None, **extra):
        seen.update(extra, grads=grads)
        return grads, state

    spy = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    cfg = PruningConfig(rule="magnitude", sparsity=0.5, start_fraction=0.0, schedule="one_shot")
    tx = prune(optax.chain(optax.identity(), spy), cfg)
    params = {"w": jnp.asarray([[1.0, -4.0], [3.0, 2.0]])}
    tx.update(
        {"w": jnp.ones((2, 2))}, tx.init(params), params, progress=0.0, next_progress=0.5, key="k"
    )
    np.testing.assert_array_equal(seen["grads"]["w"], [[0, 1], [1, 0]])
    np.testing.assert_array_equal(seen["masks"]["w"], [[False, True], [True, False]])
    assert (seen["progress"], seen["next_progress"], seen["key"]) == (0.0, 0.5, "k")


def test_momentum_cannot_move_a_pruned_weight():
    cfg = PruningConfig(rule="magnitude", sparsity=0.5, start_fraction=0.5, schedule="one_shot")
    tx = prune(optax.sgd(0.1, momentum=0.9), cfg)
    params = {"w": jnp.asarray([[0.1, 5.0], [6.0, 0.2]])}
    opt = tx.init(params)
    for step in range(4):
        updates, opt = tx.update(
            {"w": jnp.ones((2, 2))}, opt, params, next_progress=jnp.float32((step + 1) / 4)
        )
        params = optax.apply_updates(params, updates)
    np.testing.assert_array_equal(params["w"] == 0, [[True, False], [False, True]])
    trace = optax.tree_utils.tree_get(opt, "trace")["w"]
    np.testing.assert_array_equal(trace == 0, [[True, False], [False, True]])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_pruned_weights_are_exactly_zero_in_any_type(dtype):
    rng = np.random.default_rng(2)
    params = {"w": jnp.asarray(rng.normal(size=(16, 16)), dtype)}
    cfg = PruningConfig(rule="magnitude", sparsity=0.6, start_fraction=0.0, schedule="one_shot")
    tx = prune(optax.adamw(1e-2), cfg)
    grads = {"w": jnp.asarray(rng.normal(size=(16, 16)), dtype)}
    updates, opt = tx.update(grads, tx.init(params), params, next_progress=jnp.float32(0.5))
    params = optax.apply_updates(params, updates)
    assert params["w"].dtype == dtype
    assert int((params["w"] == 0).sum()) == round(0.6 * 256)
    np.testing.assert_array_equal(params["w"] != 0, masks_of(opt)["w"])


def test_states_that_leave_parameters_out_are_kept():
    params = small_tree()
    inner = optax.chain(
        optax.masked(optax.trace(0.9), jax.tree.map(lambda x: x.ndim > 1, params)),
        optax.adafactor(1e-2, min_dim_size_to_factor=4),
    )
    cfg = PruningConfig(rule="magnitude", sparsity=0.5, start_fraction=0.0, schedule="one_shot")
    tx = prune(inner, cfg)
    grads = jax.tree.map(jnp.ones_like, params)
    updates, opt = jax.jit(
        lambda grads, params: tx.update(grads, tx.init(params), params, next_progress=0.5)
    )(grads, params)
    params = dict(named_leaves(optax.apply_updates(params, updates)))
    for path, mask in masks_of(opt).items():
        np.testing.assert_array_equal(params[path] == 0, ~mask)


def test_apply_masks_makes_a_sparse_start_sparse():
    cfg = PruningConfig(rule="static", sparsity=0.75, schedule="constant")
    params, opt = Trainer(cfg).init()
    for path, leaf in named_leaves(params):
        mask = masks_of(opt).get(path)
        if mask is not None:
            np.testing.assert_array_equal(leaf != 0, mask)
    assert forward_params(cfg, params, opt) is params


def test_straight_through_hides_masked_weights_from_the_forward_pass():
    cfg = PruningConfig(rule="magnitude_ste", sparsity=0.5)
    params = {"w": jnp.asarray([[1.0, 2.0]])}
    opt = prune(optax.sgd(0.1), cfg).init(params)
    opt = replace_masks(opt, {"w": jnp.asarray([[False, True]])})
    np.testing.assert_array_equal(forward_params(cfg, params, opt)["w"], [[0.0, 2.0]])


def test_random_rules_ask_for_a_key():
    cfg = PruningConfig(rule="static", sparsity=0.5, schedule="constant")
    with pytest.raises(ValueError, match="give prune and its update a key"):
        prune(optax.sgd(0.1), cfg).init({"w": jnp.ones((4, 4))})


def test_two_runs_of_other_keys_have_other_random_masks():
    cfg = PruningConfig(rule="static", sparsity=0.5, schedule="constant")
    params = {"w": jnp.ones((16, 16)), "v": jnp.ones((16, 16))}
    first_masks = jax.jit(lambda key: masks_of(prune(optax.sgd(0.1), cfg, key).init(params)))
    one, two = first_masks(jax.random.key(0)), first_masks(jax.random.key(1))
    assert (one["w"] != two["w"]).any()
    assert (one["w"] != one["v"]).any()


def test_accumulating_outside_reaches_the_target_even_if_the_end_falls_between():
    # 24 micro-steps, an update every second: the end, at 75 %, is crossed by a step that emits
    # nothing when the budget is shifted by one.
    cfg = PruningConfig(rule="magnitude", sparsity=0.5, end_fraction=17 / 24)
    run = Trainer(cfg, accumulate="outside").run()
    for mask in run.masks.values():
        assert (~mask[-1]).sum() == mask[-1].size / 2


def test_ordinary_steps_hold_one_byte_a_weight_more():
    params = {"w": jax.ShapeDtypeStruct((256, 512), jnp.float32)}
    cfg = PruningConfig(rule="magnitude", sparsity=0.5)
    shapes = jax.eval_shape(lambda p: prune(optax.adam(1e-3), cfg).init(p), params)
    plain = jax.eval_shape(optax.adam(1e-3).init, params)
    extra = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(shapes)) - sum(
        x.size * x.dtype.itemsize for x in jax.tree.leaves(plain)
    )
    assert extra == 256 * 512 + 12
