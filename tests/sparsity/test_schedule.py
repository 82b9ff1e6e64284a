"""When weights go: values, integrals, and the choices of masks at both ends."""

import jax.numpy as jnp
import numpy as np
import pytest

from sparsity.config import PruningConfig
from sparsity.schedule import mean_share, share_of_target, share_per_step, update_steps

CONFIGS = [
    PruningConfig(rule="magnitude", sparsity=0.75),
    PruningConfig(rule="magnitude", schedule="polynomial", power=1.5, start_fraction=0.0),
    PruningConfig(rule="magnitude", schedule="polynomial", power=1.0, end_fraction=1.0),
    PruningConfig(rule="magnitude", schedule="constant", start_fraction=0.1),
    PruningConfig(rule="magnitude", schedule="one_shot", start_fraction=0.4),
    PruningConfig(rule="magnitude", start_fraction=0.5, end_fraction=0.5),
    PruningConfig(rule="rigl", schedule="constant"),
]


def test_cubic_values():
    cfg = PruningConfig(rule="magnitude", sparsity=0.75)
    progress = np.asarray([0, 0.25, 0.375, 0.5, 0.75, 1])
    expected = [0, 0, 1 - 0.75**3, 1 - 0.5**3, 1, 1]
    np.testing.assert_allclose(share_of_target(cfg, progress), expected, rtol=1e-12)
    np.testing.assert_allclose(
        share_of_target(cfg, jnp.asarray(progress), jnp), expected, rtol=1e-6
    )


@pytest.mark.parametrize("cfg", CONFIGS)
def test_mean_share_is_the_integral(cfg):
    middle = (np.arange(200_000) + 0.5) / 200_000
    share = share_of_target(cfg, middle) if cfg.rule != "rigl" else np.ones(1)
    np.testing.assert_allclose(mean_share(cfg), share.mean(), atol=1e-5)


@pytest.mark.parametrize("cfg", CONFIGS)
def test_staircase_tends_to_the_integral(cfg):
    fine = share_per_step(PruningConfig(**vars(cfg) | {"update_every_steps": 1}), _progress(20_000))
    np.testing.assert_allclose(fine.mean(), mean_share(cfg), atol=2e-4)


def _progress(steps: int) -> np.ndarray:
    return np.arange(steps + 1, dtype=np.float32) / np.float32(steps)


@pytest.mark.parametrize("steps", [1, 7, 130, 1000])
@pytest.mark.parametrize("every", [1, 9, 100, 10_000])
@pytest.mark.parametrize("cfg", CONFIGS[:-1])
def test_the_target_is_reached_whatever_the_interval(cfg, every, steps):
    cfg = PruningConfig(**vars(cfg) | {"update_every_steps": every})
    share, due = share_per_step(cfg, _progress(steps)), update_steps(cfg, _progress(steps))
    assert share[-1] == 1.0
    last = np.flatnonzero(due)[-1]
    end = cfg.start_fraction if cfg.schedule == "one_shot" else cfg.end_fraction
    after = _progress(steps)[1:]
    assert after[last] >= np.float32(end) > (0 if last == 0 else after[last - 1]) or end == 0


def test_masks_are_chosen_every_k_steps_inside_the_window_and_at_both_ends():
    cfg = PruningConfig(rule="magnitude", update_every_steps=10)
    due = np.flatnonzero(update_steps(cfg, _progress(100)))
    # Steps count from 0, so the one that spends 25 % is step 24 and the one for 75 % is step 74.
    np.testing.assert_array_equal(due, [24, 30, 40, 50, 60, 70, 74])


def test_one_shot_chooses_once():
    cfg = PruningConfig(rule="magnitude", schedule="one_shot", update_every_steps=1)
    assert update_steps(cfg, _progress(40)).sum() == 1
