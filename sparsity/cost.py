"""What a sparse run costs: FLOPs with zeros computed or skipped, and bytes in each form."""

import dataclasses
import math
from typing import Any

import numpy as np

from sparsity.config import PruningConfig
from sparsity.plan import Target, make_plan, named_leaves
from sparsity.schedule import mean_share, share_per_step, update_steps, window

# A training step is a forward pass and two products of the same size in the backward pass.
BACKWARD_PRODUCTS = 2


@dataclasses.dataclass(frozen=True)
class Flops:
    """FLOPs of matrix products under one accounting; never add figures of two accountings."""

    # The whole training run.
    training: float
    # One forward pass over a batch at the end.
    inference: float


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Bytes of all parameters in each form; parameters that are not pruned count dense in all."""

    dense: int
    # Kept values and one bit a weight.
    bitmask: int
    # Kept values, an int32 column for each, an int32 pointer for each row.
    csr: int
    # N values and N indices of ⌈log2 M⌉ bits for every M weights; None where no tensor is N:M.
    nm: int | None


def flops_zeros_computed(forward_flops: dict[str, float], steps: int) -> Flops:
    """Returns FLOPs on hardware that multiplies zeros like any number.

    `forward_flops` has the forward FLOPs of one step for every parameter path (and for products
    without weights, under any other name).
    """
    forward = float(sum(forward_flops.values()))
    return Flops(training=steps * (1 + BACKWARD_PRODUCTS) * forward, inference=forward)


def flops_zeros_skipped(
    cfg: PruningConfig,
    forward_flops: dict[str, float],
    sparsities: dict[str, float],
    progress: np.ndarray,
) -> Flops:
    """Returns FLOPs on ideal hardware that skips every zero weight, over the schedule as it ran.

    Args:
      cfg: when sparsity grew.
      forward_flops: as for `flops_zeros_computed`.
      sparsities: final share of zeros of each pruned path; on the way there every path is taken to
        have the same share of its own target (exact but for distribution="global").
      progress: (steps + 1,) budget shares before the first step and after each.

    Forward and the gradient of the inputs skip zeros. So does the gradient of the weights, except
    where a rule needs it for pruned weights too: at every step until the end for magnitude_ste, at
    every choice of masks for rigl.
    """
    share = share_per_step(cfg, progress)
    if cfg.rule == "magnitude_ste":
        share_of_gradient = np.where(np.asarray(progress[1:]) < window(cfg)[1], 0.0, share)
    elif cfg.rule == "rigl":
        share_of_gradient = np.where(update_steps(cfg, progress), 0.0, share)
    else:
        share_of_gradient = share
    training = inference = 0.0
    for path, forward in forward_flops.items():
        zeros = sparsities.get(path, 0.0)
        products = 2 * (1 - zeros * share) + (1 - zeros * share_of_gradient)
        training += forward * float(products.sum())
        inference += forward * (1 - zeros)
    return Flops(training, inference)


def mean_density(cfg: PruningConfig, sparsity: float) -> float:
    """Returns the density 1 − s averaged over the budget, for masks chosen at every instant.

    Cubic from 25 % to 75 %: 1 − 0.625 S, so that training costs (1 − 0.625 S) / (1 − S) times a
    dense network of as many non-zeros (the integral of the schedule of Frantar et al. 2024).
    """
    return 1 - sparsity * mean_share(cfg)


def parameter_bytes(cfg: PruningConfig, params: Any, zeros: dict[str, int]) -> Bytes:
    """Returns the size of all parameters (arrays or shapes with a dtype) with these zeros."""
    leaves = {
        path: (math.prod(leaf.shape), leaf.dtype.itemsize) for path, leaf in named_leaves(params)
    }
    targets = make_plan(cfg, params).targets if zeros else {}
    dense = {path: size * width for path, (size, width) in leaves.items()}
    bitmask, csr, nm = dict(dense), dict(dense), dict(dense)
    for path, count in zeros.items():
        size, width = leaves[path]
        values = (size - count) * width
        bitmask[path] = values + math.ceil(size / 8)
        csr[path] = values + 4 * (size - count) + 4 * _row_pointers(targets[path])
        nm[path] = _nm_bytes(targets[path], size, width) or bitmask[path]
    any_nm = any(target.pattern.kind == "n:m" for target in targets.values())
    total = [sum(form.values()) for form in (dense, bitmask, csr, nm)]
    return Bytes(total[0], total[1], total[2], total[3] if any_nm else None)


def _row_pointers(target: Target) -> int:
    layers, rows, _ = target.matrix_shape
    return layers * (rows + 1)


def _nm_bytes(target: Target, size: int, width: int) -> int | None:
    """Returns the bytes of N:M values and indices, None for another pattern."""
    if target.pattern.kind != "n:m":
        return None
    kept, group = target.pattern.shape
    values = size // group * kept
    return values * width + math.ceil(values * index_bits(group) / 8)


def index_bits(group: int) -> int:
    """Returns the bits that name a position in a group."""
    return (group - 1).bit_length()
