"""Checkpoints: bit for bit, packed masks, damage seen and survived, full disks explained."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.checkpoint import Checkpoints
from models.errors import UserError


def some_state(step):
    key = jax.random.key(step)
    return {
        "params": {"a": jax.random.normal(key, (33, 7)), "b": jnp.ones((5,), jnp.bfloat16) * step},
        "opt": ({"masks": jax.random.bernoulli(key, 0.3, (3, 11))}, jnp.int32(step)),
        "step": jnp.int32(step),
        "key": key,
    }


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.fixture
def folder(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (10, 20, 30):
            checkpoints.save(step, some_state(step), {"rst_s": step / 10})
            checkpoints.wait()
    return tmp_path


def load(folder):
    told = []
    shapes = jax.eval_shape(lambda: some_state(0))
    with Checkpoints(folder, keep=2) as checkpoints:
        return checkpoints.restore_latest(shapes, told.append), told


def test_newest_comes_back_bit_for_bit(folder):
    (state, meta), told = load(folder)
    assert_same(state, some_state(30))
    assert meta == {"rst_s": 3.0}
    assert not told
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["20", "30"]


def test_masks_take_one_bit_a_weight(tmp_path):
    mask = jax.random.bernoulli(jax.random.key(0), 0.5, (1000, 1000))
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, {"mask": mask}, {})
        checkpoints.wait()
    stored = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 125_000 <= stored < 180_000


def truncate(folder):
    for path in folder.rglob("d/*"):
        path.write_bytes(path.read_bytes()[:50])


def flip(folder):
    """Changes single bits in the array data, which Orbax itself does not notice."""
    for path in folder.rglob("d/*"):
        data = bytearray(path.read_bytes())
        for index in range(len(data) // 4, len(data) // 2):
            data[index] ^= 1
        path.write_bytes(data)


def remove_a_part(folder):
    shutil.rmtree(next(path for path in folder.rglob("d") if path.is_dir()))


@pytest.mark.parametrize("damage", [truncate, flip, remove_a_part])
def test_damaged_checkpoint_falls_back_to_the_one_before(folder, damage):
    damage(folder / "30")
    (state, _), told = load(folder)
    assert_same(state, some_state(20))
    assert len(told) == 1 and "checkpoint of step 30 is damaged" in told[0]
    # The damaged one is out of the way of the run that goes on, but not deleted.
    assert (folder / "damaged-30").exists() and not (folder / "30").exists()


def test_nothing_saved_is_none(tmp_path):
    assert load(tmp_path) == (None, [])


def test_saving_does_not_race_with_the_next_step(tmp_path):
    """The state is donated to the next step while it is being written."""
    bump = jax.jit(lambda x: x + 1, donate_argnums=0)
    state = {"x": jnp.zeros((400, 400))}
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in range(3):
            checkpoints.save(step, state, {})
            for _ in range(20):
                state = {"x": bump(state["x"])}
            checkpoints.wait()
        shapes = jax.eval_shape(lambda: {"x": jnp.zeros((400, 400))})
        restored, _ = checkpoints.restore_latest(shapes, pytest.fail)
    np.testing.assert_array_equal(restored["x"], np.full((400, 400), 40.0))


def test_full_disk_is_explained_and_costs_nothing(folder, monkeypatch):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with (
        Checkpoints(folder, keep=2) as checkpoints,
        pytest.raises(UserError, match=r"disk full: the checkpoint of step 40 needs"),
    ):
        checkpoints.save(40, some_state(40), {})
    (state, _), _ = load(folder)
    assert_same(state, some_state(30))
