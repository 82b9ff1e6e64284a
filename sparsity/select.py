"""Turns scores into masks that follow the plan: exact counts, patterns, one or many thresholds."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from sparsity.config import PruningConfig
from sparsity.patterns import block_scores, nm_members, spread_blocks
from sparsity.plan import Plan, Target, nm_axis
from sparsity.threshold import Score, keep_largest, where_mask

Flat = dict[str, jax.Array]
Scores = dict[str, Score]


class Selector:
    """Chooses masks by score for every pruned parameter of a plan."""

    def __init__(self, cfg: PruningConfig, plan: Plan):
        self._cfg, self._plan = cfg, plan

    def at(self, scores: Scores, share: jax.Array | float) -> Flat:
        """Returns the masks at `share` of the target sparsity; negative scores are never kept.

        At share 1 the counts are the plan's, to the weight. N:M patterns are reached gradually:
        weights outside their group's N largest go first, smallest first.
        """
        masks = {
            path: self._one(scores[path], target, _pruned(target.pruned_units, share))
            for path, target in self._plan.targets.items()
            if path not in self._plan.global_paths
        }
        return masks | self._together(scores, share)

    def keep_share(self, scores: Scores, share: jax.Array | float) -> Flat:
        """Returns masks of the best `share` of each parameter's finally kept units."""
        masks = {}
        for path, target in self._plan.targets.items():
            kept = target.units - target.pruned_units
            masks[path] = _keep(scores[path], target, jnp.round(share * kept).astype(jnp.int32))
        return masks

    def _one(self, score: Score, target: Target, pruned: jax.Array) -> jax.Array:
        if target.pattern.kind == "n:m":
            members = nm_members(score.values(), *target.pattern.shape, nm_axis(self._cfg))
            lifted = Score(_members_first(score.function), (members, *score.operands)).values()
            # Stored, four bytes a weight for a moment: twelve passes over floats alone take half
            # the time of as many over floats and two masks, which XLA's CPU backend vectorises
            # badly.
            score = Score(lambda x: x, (lax.optimization_barrier(lifted),))
        return _keep(score, target, target.units - pruned)

    def _together(self, scores: Scores, share: jax.Array | float) -> Flat:
        paths = self._plan.global_paths
        if not paths:
            return {}
        targets = [self._plan.targets[path] for path in paths]
        flat = [scores[path].map(lambda x: x.reshape(1, -1, x.shape[-1])) for path in paths]
        total = sum(target.layers * target.units for target in targets)
        keep = (total - _pruned(self._plan.global_pruned, share)).reshape(1)
        masks = keep_largest(flat, keep)
        return {p: m.reshape(t.shape) for p, t, m in zip(paths, targets, masks, strict=True)}


def _members_first(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Returns the scores with every kept member of an N:M mask above all others."""

    def lifted(members: jax.Array, *operands: jax.Array) -> jax.Array:
        score = function(*operands)
        return where_mask(members, jnp.where(score >= 0, jnp.inf, score), score)

    return lifted


def _pruned(final: int, share: jax.Array | float) -> jax.Array:
    """Returns share · final as int32; exact at share 1, where float32 could miss a large count."""
    share = jnp.asarray(share, jnp.float32)
    some = jnp.minimum(jnp.round(share * final).astype(jnp.int32), final)
    return jnp.where(share >= 1, final, some)


def _keep(score: Score, target: Target, keep: jax.Array) -> jax.Array:
    score = score.map(lambda x: x.reshape(target.matrix_shape))
    keep = jnp.broadcast_to(keep, (target.layers,)).astype(jnp.int32)
    if target.pattern.kind == "block":
        pooled = block_scores(score.values(), *target.pattern.shape)
        (mask,) = keep_largest([Score(lambda x: x, (pooled,))], keep)
        mask = spread_blocks(mask, *target.pattern.shape)
    else:
        (mask,) = keep_largest([score], keep)
    return mask.reshape(target.shape)


def map_paths(function: Callable[..., Any], *trees: Mapping[str, Any]) -> dict[str, Any]:
    """Returns {path: function(values of the trees at path)} for the paths of the first tree."""
    return {path: function(*(tree[path] for tree in trees)) for path in trees[0]}


def make_scores(function: Callable[..., jax.Array], *operands: Flat) -> Scores:
    """Returns the scores function(operands at path), elementwise, for every path."""
    return map_paths(lambda *arrays: Score(function, arrays), *operands)
