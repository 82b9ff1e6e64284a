"""AdaFactor over kept weights: against loops, optax, and the same weights without the zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sparsity.adafactor import scale_by_sparse_adafactor
from sparsity.config import PruningConfig
from sparsity.prune import masks_of, prune


def gradients(shape, steps=4, seed=0):
    return np.random.default_rng(seed).normal(size=(steps, *shape)).astype(np.float32) * 3


def follow(tx, params, grads, **extra):
    state, updates = tx.init(params), None
    for grad in grads:
        updates, state = tx.update({"w": jnp.asarray(grad)}, state, params, **extra)
    return np.asarray(updates["w"])


def test_dense_is_unfactored_adafactor_of_optax():
    params = {"w": jnp.asarray(gradients((6, 8), 1, 1)[0])}
    reference = optax.chain(
        optax.scale_by_factored_rms(factored=False, decay_rate=0.8, epsilon=1e-30),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_param_block_rms(1e-3),
    )
    grads = gradients((6, 8))
    ours = follow(scale_by_sparse_adafactor(), params, grads)
    np.testing.assert_allclose(ours, follow(reference, params, grads), rtol=1e-5)


def test_kept_weights_move_as_if_the_zeros_were_not_there():
    rng = np.random.default_rng(2)
    mask = rng.random((10, 12)) < 0.3
    weights = np.where(mask, rng.normal(size=mask.shape), 0).astype(np.float32)
    grads = np.where(mask, gradients(mask.shape), 0)
    sparse = follow(
        scale_by_sparse_adafactor(), {"w": jnp.asarray(weights)}, grads, masks={"w": mask}
    )
    alone = follow(
        scale_by_sparse_adafactor(), {"w": jnp.asarray(weights[mask])}, [g[mask] for g in grads]
    )
    np.testing.assert_allclose(sparse[mask], alone, rtol=1e-5)
    np.testing.assert_array_equal(sparse[~mask], 0)


def test_against_a_loop():
    rng = np.random.default_rng(3)
    mask = rng.random((5, 7)) < 0.5
    weights = np.where(mask, rng.normal(size=mask.shape), 0).astype(np.float32)
    grads = np.where(mask, gradients(mask.shape, 3), 0).astype(np.float32)
    moment, expected = np.zeros(mask.shape), None
    for step, grad in enumerate(grads, 1):
        decay = min(1 - step**-0.8, 0.5)
        u = np.zeros(mask.shape)
        for i, j in np.argwhere(mask):
            moment[i, j] = decay * moment[i, j] + (1 - decay) * (float(grad[i, j]) ** 2 + 1e-30)
            u[i, j] = grad[i, j] / np.sqrt(moment[i, j])
        count = mask.sum()
        u /= max(1.0, np.sqrt((u**2).sum() / count) / 0.8)
        expected = u * max(np.sqrt((weights.astype(float) ** 2).sum() / count), 1e-3)
    tx = scale_by_sparse_adafactor(max_decay=0.5, clip_rms=0.8)
    ours = follow(tx, {"w": jnp.asarray(weights)}, grads, masks={"w": mask})
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=1e-7)


def test_small_weights_still_move():
    params = {"w": jnp.zeros((3, 4))}
    update = follow(scale_by_sparse_adafactor(), params, gradients((3, 4), 1))
    np.testing.assert_allclose(np.abs(update), 1e-3, rtol=1e-5)


def test_each_layer_of_a_stack_has_its_own_averages():
    rng = np.random.default_rng(4)
    scale = np.asarray([1e-2, 10.0], np.float32)[:, None, None]
    weights = rng.normal(size=(2, 4, 6)).astype(np.float32) * scale
    grads = gradients((2, 4, 6), 1)[0]
    tx = scale_by_sparse_adafactor()
    stacked = {"layers": {"w": jnp.asarray(weights)}}
    together, _ = tx.update({"layers": {"w": jnp.asarray(grads)}}, tx.init(stacked), stacked)
    for layer in range(2):
        alone = follow(tx, {"w": jnp.asarray(weights[layer])}, grads[None, layer])
        np.testing.assert_allclose(together["layers"]["w"][layer], alone, rtol=1e-6)


def test_inside_prune_the_masks_arrive():
    weights, grads = gradients((8, 8), 1, 5)[0], gradients((8, 8), 1, 6)[0]
    cfg = PruningConfig(rule="magnitude", sparsity=0.75, start_fraction=0.0, schedule="one_shot")
    tx = prune(optax.chain(scale_by_sparse_adafactor(), optax.scale(-0.1)), cfg)
    params = {"w": jnp.asarray(weights)}
    updates, opt = jax.jit(tx.update)(
        {"w": jnp.asarray(grads)}, tx.init(params), params, next_progress=jnp.float32(0.5)
    )
    kept = np.asarray(masks_of(opt)["w"])
    assert kept.sum() == 16
    alone = follow(scale_by_sparse_adafactor(), {"w": jnp.asarray(weights[kept])}, [grads[kept]])
    np.testing.assert_allclose(np.asarray(updates["w"])[kept], -0.1 * alone, rtol=1e-5)
    moment = optax.tree_utils.tree_get(opt, "second_moment")["w"]
    np.testing.assert_array_equal(np.asarray(moment)[~kept], 0)
