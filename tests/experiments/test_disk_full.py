"""A disk that really fills up while a checkpoint is being written."""

import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.checkpoint import Checkpoints
from models.errors import UserError

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs more rights than this user has")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def save_and_wait(checkpoints, step, state):
    checkpoints.save(step, state, {"rst_s": float(step)})
    checkpoints.wait()


def test_checkpoint_before_is_kept_when_the_disk_fills_while_saving(small_disk, monkeypatch):
    state = {"x": jax.random.normal(jax.random.key(0), (600, 1000))}
    with Checkpoints(small_disk, keep=3) as checkpoints:
        save_and_wait(checkpoints, 1, state)
        # Room enough when asked, and none any more when written.
        usage = shutil.disk_usage(small_disk)
        (small_disk / "other").write_bytes(b"x" * (usage.free - 1_000_000))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        with pytest.raises(UserError, match=r"disk full: .* was not written"):
            save_and_wait(checkpoints, 2, state)
    (small_disk / "other").unlink()
    shapes = jax.eval_shape(lambda: {"x": jnp.zeros((600, 1000))})
    with Checkpoints(small_disk, keep=3) as checkpoints:
        restored, meta = checkpoints.restore_latest(shapes, pytest.fail)
    assert meta == {"rst_s": 1.0}
    np.testing.assert_array_equal(restored["x"], state["x"])
