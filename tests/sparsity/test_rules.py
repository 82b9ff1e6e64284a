"""The contract that every pruning rule keeps; a new rule joins by one line in RULES."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from sparsity.bits import pack, unpack
from sparsity.config import RULES as RULE_NAMES
from sparsity.config import SPARSE_FROM_START, PruningConfig
from sparsity.plan import make_plan, named_leaves
from sparsity.prune import apply_masks, masks_of, prune, replace_masks
from tests.sparsity.contract import HALF, STEPS, Trainer, small_tree

RULES = {
    "magnitude": {},
    "magnitude_global": {"rule": "magnitude", "distribution": "global"},
    "magnitude_erk": {"rule": "magnitude", "distribution": "erk"},
    "magnitude_ste": {},
    "one_shot": {"rule": "magnitude", "schedule": "one_shot", "start_fraction": 0.5},
    "saliency": {},
    "random": {},
    "static": {"schedule": "constant"},
    "set": {"schedule": "constant"},
    "rigl": {"schedule": "constant"},
}
RUNS = {name: {"rule": name, "update_every_steps": 5} | fields for name, fields in RULES.items()}
every_rule = pytest.mark.parametrize("name", RUNS)


def config(name: str, **fields) -> PruningConfig:
    cfg = PruningConfig(**({"sparsity": 0.75} | RUNS[name] | fields))
    cfg.check()
    return cfg


@functools.cache
def trainer(name: str) -> Trainer:
    return Trainer(config(name))


@functools.cache
def whole_run(name: str):
    return trainer(name).run()


def assert_exact(cfg: PruningConfig, params, masks) -> None:
    """Every layer of every tensor has exactly the planned zeros, in weights and mask."""
    plan = make_plan(cfg, params)
    leaves = dict(named_leaves(params))
    assert set(masks) == set(plan.targets)
    for path, target in plan.targets.items():
        layers = np.asarray(leaves[path]).reshape(target.layers, -1)
        kept = np.asarray(masks[path]).reshape(target.layers, -1)
        np.testing.assert_array_equal(layers[~kept], 0)
        if target.sparsity is not None:
            planned = target.pruned_units * target.weights_per_unit
            np.testing.assert_array_equal((~kept).sum(axis=1), planned)
            np.testing.assert_array_equal((layers == 0).sum(axis=1), planned)
    if plan.global_paths:
        zeros = sum(int((~masks[path]).sum()) for path in plan.global_paths)
        assert zeros == plan.global_pruned


def test_every_rule_is_in_the_list():
    assert {fields["rule"] for fields in RUNS.values()} == set(RULE_NAMES) - {"none"}


@every_rule
def test_target_is_reached_exactly(name):
    run = whole_run(name)
    assert_exact(config(name), run.end[0], {path: mask[-1] for path, mask in run.masks.items()})


@pytest.mark.parametrize("name", SPARSE_FROM_START)
def test_a_sparse_start_keeps_its_own_zeros(name):
    """Weights that come from a pruned run are not pruned anew at random."""
    cfg = config(name)
    weights = apply_masks(
        small_tree(), prune(optax.sgd(0.1), cfg, jax.random.key(1)).init(small_tree())
    )
    again = prune(optax.sgd(0.1), cfg, jax.random.key(2)).init(weights)
    for path, leaf in named_leaves(weights):
        if path in masks_of(again):
            np.testing.assert_array_equal(masks_of(again)[path], leaf != 0)


@every_rule
def test_pruned_weights_are_zero_at_every_step(name):
    run, cfg = whole_run(name), config(name)
    # Straight-through keeps dense weights until the last mask is chosen.
    first = round(cfg.end_fraction * STEPS) - 1 if cfg.rule == "magnitude_ste" else 0
    for path, weights in run.weights.items():
        np.testing.assert_array_equal(weights[first:][~run.masks[path][first:]], 0)
        assert (run.masks[path].mean(axis=tuple(range(1, weights.ndim)))[-1]) < 0.6


@every_rule
def test_rules_that_do_not_regrow_never_bring_a_weight_back(name):
    run, cfg = whole_run(name), config(name)
    back = sum(int((mask[1:] & ~mask[:-1]).sum()) for mask in run.masks.values())
    assert (back > 0) == (cfg.rule in ("set", "rigl", "magnitude_ste"))


@every_rule
def test_weights_that_come_back_start_from_zero_without_a_past(name):
    run = whole_run(name)
    for path, weights in run.weights.items():
        masks = np.concatenate([run.masks[path][:1], run.masks[path]])
        regrown = masks[1:] & ~masks[:-1]
        before = np.concatenate([np.zeros_like(weights[:1]), weights[:-1]])
        if name == "magnitude_ste":
            # Straight-through never lost the value that it brings back.
            assert (before[regrown] != 0).all()
            continue
        gradient = run.gradients[path][regrown]
        np.testing.assert_array_equal(before[regrown], 0)
        np.testing.assert_allclose(run.first_moment[path][regrown], 0.1 * gradient, rtol=1e-5)
        assert (weights[regrown] * gradient < 0).all()


@every_rule
def test_statistics_of_pruned_weights_are_zero(name):
    run, cfg = whole_run(name), config(name)
    first = round(cfg.end_fraction * STEPS) - 1 if cfg.rule == "magnitude_ste" else 0
    for path, moment in run.first_moment.items():
        pruned = ~run.masks[path][first:]
        np.testing.assert_array_equal(moment[first:][pruned], 0)
        assert (moment[first:][~pruned] != 0).all()


@every_rule
def test_sparsity_follows_the_schedule(name):
    run, cfg = whole_run(name), config(name)
    for mask in run.masks.values():
        pruned = (~mask).reshape(STEPS, -1).mean(axis=1)
        if cfg.rule in SPARSE_FROM_START:
            np.testing.assert_array_equal(pruned, pruned[0])
        else:
            start = cfg.start_fraction * STEPS
            assert (pruned[: int(start) - 1] == 0).all()
            assert (np.diff(pruned) >= 0).all()


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, "outside") for name in RUNS] + [("magnitude", "inside"), ("rigl", "inside")],
)
def test_gradient_accumulation(name, place):
    cfg = config(name)
    run = Trainer(cfg, accumulate=place).run()
    assert_exact(cfg, run.end[0], {path: mask[-1] for path, mask in run.masks.items()})
    if place == "outside":
        # Between two real steps nothing moves.
        for path, mask in run.masks.items():
            np.testing.assert_array_equal(mask[2::2], mask[1:-1:2])
            np.testing.assert_array_equal(run.weights[path][2::2], run.weights[path][1:-1:2])


@every_rule
def test_eight_devices_choose_the_same_masks(name):
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def place(leaf: jax.Array) -> jax.Array:
        spec = {2: ("data", "model"), 3: (None, "data", "model")}.get(leaf.ndim, ())
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(*spec)))

    whole = whole_run(name)
    end, first = jax.tree.map(place, whole.start), 0
    while first < STEPS:
        end, (masks, *_) = trainer(name).advance(end, jnp.int32(first))
        for path, mask in masks.items():
            np.testing.assert_array_equal(mask, whole.masks[path][first : first + HALF])
        first += HALF
    some = end[0]["encoder"]["layers"]["mlp"]["wi"]
    assert len({shard.device for shard in some.addressable_shards}) == 8


@every_rule
def test_resume_from_a_checkpoint_is_bit_for_bit(name, tmp_path):
    middle, straight = whole_run(name).middle, whole_run(name).end
    shapes = {path: mask.shape for path, mask in masks_of(middle[1]).items()}
    packed = (middle[0], replace_masks(middle[1], pack(masks_of(middle[1]))))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "middle", packed)
        checkpointer.wait_until_finished()
        params, opt = checkpointer.restore(tmp_path / "middle", jax.eval_shape(lambda: packed))
    opt = replace_masks(opt, unpack(masks_of(opt), shapes))
    resumed, _ = trainer(name).advance((params, opt), jnp.int32(HALF))
    assert jax.tree.structure(resumed) == jax.tree.structure(straight)
    for left, right in zip(jax.tree.leaves(resumed), jax.tree.leaves(straight), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("magnitude", "2:4"),
        ("magnitude_ste", "1:4"),
        ("random", "block:4x4"),
        ("rigl", "2:4"),
        ("set", "block:4x4"),
    ],
)
def test_patterns_hold_at_the_end(name, pattern):
    sparsity = {"2:4": 0.5}.get(pattern, 0.75)
    cfg = config(name, pattern=pattern, sparsity=sparsity, exclude=("relative_bias",))
    run = Trainer(cfg).run()
    masks = {path: mask[-1] for path, mask in run.masks.items()}
    assert_exact(cfg, run.end[0], masks)
    for mask in masks.values():
        *lead, rows, columns = mask.shape
        if pattern == "block:4x4":
            blocks = mask.reshape(*lead, rows // 4, 4, columns // 4, 4)
            assert set(blocks.mean(axis=(-3, -1)).ravel()) <= {0.0, 1.0}
        else:
            groups = mask.reshape(*lead, rows // 4, 4, columns)
            assert (groups.sum(axis=-2) == int(pattern[0])).all()


def test_nm_is_reached_gradually_by_magnitude():
    run = Trainer(config("magnitude", pattern="2:4", sparsity=0.5, update_every_steps=2)).run()
    mask = run.masks["head/0"]
    sparsities = (~mask).mean(axis=(1, 2))
    steps_between = np.unique(sparsities)
    assert len(steps_between) >= 5
    assert steps_between[0] == 0 and steps_between[-1] == 0.5
    # The first weights to go are the smallest of those outside their group's two largest.
    first = int(np.flatnonzero(sparsities)[0])
    before = np.abs(run.weights["head/0"][first - 1])
    ranks = np.argsort(np.argsort(-before.reshape(4, 4, 8), axis=1), axis=1)
    outside = (ranks >= 2).reshape(before.shape)
    gone = ~mask[first]
    assert (outside | ~gone).all()
    assert before[gone].max() <= before[outside & ~gone].min()


def test_each_layer_of_a_stack_is_pruned_on_its_own():
    run = whole_run("magnitude")
    stacked = run.masks["encoder/layers/mlp/wi"]
    for layer in range(2):
        assert ((~stacked[:, layer]).sum(axis=(1, 2)) == (~stacked[:, 0]).sum(axis=(1, 2))).all()


def test_unpruned_leaves_train_on():
    run = whole_run("rigl")
    before, after = small_tree(), run.end[0]
    for path, leaf in named_leaves(after):
        if path not in run.masks:
            assert (np.asarray(leaf) != np.asarray(dict(named_leaves(before))[path])).all()
