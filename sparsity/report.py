"""What sparsity a tree of parameters has reached, beside what was asked."""

from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.config import PruningConfig, parse_pattern
from sparsity.plan import Plan, Target, make_plan, named_leaves
from sparsity.prune import masks_of, prune_state


class Reached(TypedDict):
    """Zeros of one parameter; `asked` is None under a global threshold."""

    asked: float | None
    reached: float
    zeros: int
    size: int
    # Largest distance of a layer's zeros from the plan, in weights; 0 is exact.
    off_by: int


class Summary(TypedDict):
    """Zeros over all pruned parameters, then each; the extremes are paths."""

    # For example `2:4 along the contraction axis`.
    pattern: str
    overall: float
    target: float
    off_by: int
    lowest: str
    highest: str
    by_path: dict[str, Reached]


def summary(cfg: PruningConfig, params: Any, opt_state: Any) -> Summary | None:
    """Returns sparsity asked and reached over the pruned parameters; None where nothing is pruned.

    A weight counts as a zero when its mask prunes it and it is exactly 0.
    """
    masks = masks_of(opt_state)
    if not masks:
        return None
    plan = make_plan(cfg, params)
    leaves = {path: leaf for path, leaf in named_leaves(params) if path in masks}
    counts = jax.device_get(_zeros_per_layer(leaves, masks))
    by_path = {path: _reached(plan.targets[path], zeros) for path, zeros in sorted(counts.items())}
    zeros = sum(one["zeros"] for one in by_path.values())
    size = sum(one["size"] for one in by_path.values())
    planned = planned_zeros(plan)
    order = sorted(by_path, key=lambda path: by_path[path]["reached"])
    if plan.global_paths:
        apart = abs(sum(by_path[path]["zeros"] for path in plan.global_paths) - plan.global_pruned)
    else:
        apart = 0
    nm = parse_pattern(cfg.pattern).kind == "n:m"
    return Summary(
        pattern=f"{cfg.pattern} along the {cfg.nm_axis} axis" if nm else cfg.pattern,
        overall=zeros / size,
        target=planned / size,
        off_by=max(apart, *(one["off_by"] for one in by_path.values())),
        lowest=order[0],
        highest=order[-1],
        by_path=by_path,
    )


def planned_zeros(plan: Plan) -> int:
    """Returns how many weights are 0 at the end of the schedule."""
    return plan.global_pruned + sum(
        target.layers * target.pruned_units * target.weights_per_unit
        for target in plan.targets.values()
    )


def current_sparsity(opt_state: Any) -> jax.Array:
    """Returns the share of pruned weights among all that can be pruned, a float32 scalar."""
    state = prune_state(opt_state)
    return state.sparsity if state else jnp.float32(0)


@jax.jit
def _zeros_per_layer(leaves: dict, masks: dict) -> dict:
    def count(leaf: jax.Array, mask: jax.Array) -> jax.Array:
        zero = (leaf == 0) & ~mask
        return jnp.sum(zero, axis=tuple(range(1, zero.ndim)), dtype=jnp.int32)

    return {path: count(leaf, masks[path]) for path, leaf in leaves.items()}


def _reached(target: Target, first_axis: np.ndarray) -> Reached:
    per_layer = first_axis.astype(np.int64)
    if target.layers == 1:
        per_layer = per_layer.sum(keepdims=True)
    size = target.layers * target.matrix_shape[1] * target.matrix_shape[2]
    zeros = int(per_layer.sum())
    off = per_layer - target.pruned_units * target.weights_per_unit
    return Reached(
        asked=target.sparsity,
        reached=zeros / size,
        zeros=zeros,
        size=size,
        off_by=0 if target.sparsity is None else int(np.abs(off).max()),
    )
