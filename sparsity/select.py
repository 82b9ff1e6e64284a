"""Turns scores into masks that follow the plan: exact counts, patterns, one or many thresholds."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from sparsity.config import PruningConfig
from sparsity.patterns import block_scores, nm_members, spread_blocks
from sparsity.plan import Plan, Target, nm_axis
from sparsity.threshold import keep_largest

Flat = dict[str, jax.Array]


class Selector:
    """Chooses masks by score for every pruned parameter of a plan."""

    def __init__(self, cfg: PruningConfig, plan: Plan):
        self._cfg, self._plan = cfg, plan

    def at(self, scores: Flat, share: jax.Array | float) -> Flat:
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

    def keep_share(self, scores: Flat, share: jax.Array | float) -> Flat:
        """Returns masks of the best `share` of each parameter's finally kept units."""
        masks = {}
        for path, target in self._plan.targets.items():
            kept = target.units - target.pruned_units
            masks[path] = _keep(scores[path], target, jnp.round(share * kept).astype(jnp.int32))
        return masks

    def _one(self, score: jax.Array, target: Target, pruned: jax.Array) -> jax.Array:
        if target.pattern.kind == "n:m":
            members = nm_members(score, *target.pattern.shape, nm_axis(self._cfg))
            score = jnp.where(members & (score >= 0), jnp.inf, score)
        return _keep(score, target, target.units - pruned)

    def _together(self, scores: Flat, share: jax.Array | float) -> Flat:
        paths = self._plan.global_paths
        if not paths:
            return {}
        targets = [self._plan.targets[path] for path in paths]
        flat = [scores[p].reshape(1, -1, t.shape[-1]) for p, t in zip(paths, targets, strict=True)]
        total = sum(score.size for score in flat)
        keep = (total - _pruned(self._plan.global_pruned, share)).reshape(1)
        masks = keep_largest([score.astype(jnp.float32) for score in flat], keep)
        return {p: m.reshape(t.shape) for p, t, m in zip(paths, targets, masks, strict=True)}


def _pruned(final: int, share: jax.Array | float) -> jax.Array:
    """Returns share · final as int32; exact at share 1, where float32 could miss a large count."""
    share = jnp.asarray(share, jnp.float32)
    return jnp.where(
        share >= 1, final, jnp.minimum(jnp.round(share * final), final).astype(jnp.int32)
    )


def _keep(score: jax.Array, target: Target, keep: jax.Array) -> jax.Array:
    score = score.astype(jnp.float32).reshape(target.matrix_shape)
    keep = jnp.broadcast_to(keep, (target.layers,)).astype(jnp.int32)
    if target.pattern.kind == "block":
        (mask,) = keep_largest([block_scores(score, *target.pattern.shape)], keep)
        mask = spread_blocks(mask, *target.pattern.shape)
    else:
        (mask,) = keep_largest([score], keep)
    return mask.reshape(target.shape)


def map_paths(function, *trees: Flat) -> Flat:
    """Returns {path: function(values of the trees at path)} for the paths of the first tree."""
    paths: Iterable[str] = trees[0]
    return {path: function(*(tree[path] for tree in trees)) for path in paths}
