"""When weights go: the share of the target sparsity that is due at a point of the budget."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsity.config import SPARSE_FROM_START, PruningConfig


def power(cfg: PruningConfig) -> float | None:
    """Returns the exponent of a growing schedule, None where sparsity comes all at once."""
    return {"cubic": 3.0, "polynomial": cfg.power}.get(cfg.schedule)


def window(cfg: PruningConfig) -> tuple[float, float]:
    """Returns the budget shares at the first and the last choice of masks."""
    end = cfg.start_fraction if cfg.schedule == "one_shot" else cfg.end_fraction
    return cfg.start_fraction, end


def phase(cfg: PruningConfig, progress: Any, xp: Any = np) -> Any:
    """Returns how far `progress` is through the window, in [0, 1]; `xp` is numpy or jax.numpy."""
    start, end = window(cfg)
    if start == end:
        return xp.where(xp.asarray(progress) >= end, 1.0, 0.0)
    return xp.clip((xp.asarray(progress) - start) / (end - start), 0.0, 1.0)


def share_of_target(cfg: PruningConfig, progress: Any, xp: Any = np) -> Any:
    """Returns s(progress)/S: 1 − (1 − t)^power over the window, 0 before it and 1 after it.

    Zhu & Gupta 2017 (arXiv 1710.01878), equation 1, is the cubic case.
    """
    exponent = power(cfg)
    if exponent is None:
        return xp.where(xp.asarray(progress) >= cfg.start_fraction, 1.0, 0.0)
    return 1.0 - (1.0 - phase(cfg, progress, xp)) ** exponent


def mean_share(cfg: PruningConfig) -> float:
    """Returns the mean of s/S over the whole budget, in closed form (updates at every instant)."""
    if cfg.rule in SPARSE_FROM_START:
        return 1.0
    start, end = window(cfg)
    exponent = power(cfg)
    if exponent is None:
        return 1.0 - start
    return (end - start) * exponent / (exponent + 1.0) + (1.0 - end)


def update_steps(cfg: PruningConfig, progress: Sequence[float] | np.ndarray) -> np.ndarray:
    """Says for each step whether masks are chosen in it, (steps,) bool.

    `progress` has steps + 1 values: the budget share before the first step, then after each.
    """
    after = np.asarray(progress, np.float32)[1:]
    seen = np.concatenate([[np.float32(-1)], after[:-1]])
    return is_due(cfg, np.arange(len(after)), seen, after)


def share_per_step(cfg: PruningConfig, progress: Sequence[float] | np.ndarray) -> np.ndarray:
    """Returns s/S during each step, as the masks really are: constant between two choices.

    A step's masks are chosen at its start, for the budget spent at its end; `progress` is as for
    `update_steps`.
    """
    after = np.asarray(progress, np.float32)[1:]
    if cfg.rule in SPARSE_FROM_START:
        return np.ones(len(after))
    last_update = np.maximum.accumulate(
        np.where(update_steps(cfg, progress), np.arange(len(after)), -1)
    )
    chosen = share_of_target(cfg, after[np.maximum(last_update, 0)])
    return np.where(last_update < 0, 0.0, chosen)


def is_due(cfg: PruningConfig, step: Any, seen: Any, after: Any) -> Any:
    """Says whether masks are chosen in this step: every k steps, and on both ends of the window.

    `seen` is the budget share up to which masks are settled (−1 before the first step), `after`
    the share after this step; works on numbers and on traced scalars.
    """
    start, end = (np.float32(x) for x in window(cfg))
    inside = (after >= start) & (seen < end)
    crossing = (seen < start) | (after >= end)
    return inside & (crossing | (step % cfg.update_every_steps == 0))
