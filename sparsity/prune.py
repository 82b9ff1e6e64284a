"""Pruning as an optimiser: wraps any optax transformation and keeps masks in its state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sparsity.config import PruningConfig
from sparsity.plan import make_plan, named_leaves
from sparsity.rules import Step, make_rule
from sparsity.schedule import is_due, phase, share_of_target, window
from sparsity.select import Flat, Selector, map_paths


class PruneState(NamedTuple):
    """Masks (True where kept) of the pruned parameters by path, and the wrapped state."""

    masks: Flat
    inner: Any
    # Share of the budget up to which the masks are settled; −1 before the first step.
    progress: jax.Array
    # Steps taken, int32.
    step: jax.Array
    # Share of pruned weights among all that can be pruned, float32; counted when masks change.
    sparsity: jax.Array


def prune(
    inner: optax.GradientTransformation, cfg: PruningConfig, key: jax.Array | None = None
) -> optax.GradientTransformationExtraArgs:
    """Returns `inner` with pruning: after `apply_updates` pruned weights are exactly 0.

    `key` draws the first masks of rules that start sparse. The returned update takes `progress`
    and `next_progress` (float32 budget shares before and after the step) and `key`, and hands them
    on to `inner` together with `masks`. Masks are chosen from the weights and the gradients that
    the step is given, every `update_every_steps` steps and at both ends of the window. `inner` sees
    gradients and statistics of 0 for pruned weights; weights that come back start from 0, without
    a past.
    """
    inner = optax.with_extra_args_support(inner)
    if cfg.rule == "none":
        return inner
    rule = make_rule(cfg)
    end = window(cfg)[1]

    def init(params: Any) -> PruneState:
        plan = make_plan(cfg, params)
        masks = rule.initial(_pick(params, plan.targets), Selector(cfg, plan), key)
        start = jnp.float32(-1), jnp.int32(0), _share_pruned(masks)
        return PruneState(masks, inner.init(params), *start)

    def update(
        grads: Any,
        state: PruneState,
        params: Any,
        *,
        next_progress: jax.Array,
        key: jax.Array | None = None,
        **extra: Any,
    ) -> tuple[Any, PruneState]:
        plan = make_plan(cfg, params)

        def choose() -> tuple[Flat, jax.Array]:
            step = Step(
                weights=_pick(params, plan.targets),
                gradients=_pick(grads, plan.targets),
                masks=state.masks,
                key=key,
                share=share_of_target(cfg, next_progress, jnp),
                phase=phase(cfg, next_progress, jnp),
            )
            masks = rule.update(step, Selector(cfg, plan))
            return masks, _share_pruned(masks)

        due = is_due(cfg, state.step, state.progress, next_progress)
        masks, sparsity = jax.lax.cond(due, choose, lambda: (state.masks, state.sparsity))
        kept = masks
        if rule.straight_through:
            # Masked weights keep learning until the last mask is chosen; only then are they zeroed.
            kept = map_paths(lambda mask: mask | (next_progress < end), masks)
        # The statistics are masked before the update, not after it: then all of it is one fused
        # pass that writes every moment in place.
        updates, inner_state = inner.update(
            map_masked(lambda grad, keep: jnp.where(keep, grad, 0), grads, kept),
            _mask_statistics(inner, state.inner, params, kept),
            params,
            next_progress=next_progress,
            key=key,
            masks=kept,
            **extra,
        )
        updates = map_masked(lambda u, keep, w: jnp.where(keep, u, -w), updates, kept, params)
        settled = jnp.asarray(next_progress, jnp.float32)
        return updates, PruneState(masks, inner_state, settled, state.step + 1, sparsity)

    return optax.GradientTransformationExtraArgs(init, update)


def masks_of(opt_state: Any) -> Flat:
    """Returns the masks by path in a (nested) optimiser state; {} where nothing is pruned."""
    state = prune_state(opt_state)
    return state.masks if state else {}


def prune_state(opt_state: Any) -> PruneState | None:
    """Returns the pruning state inside a (nested) optimiser state, None where nothing is pruned."""
    leaves = jax.tree.leaves(opt_state, is_leaf=_is_state)
    return next((leaf for leaf in leaves if _is_state(leaf)), None)


def replace_masks(opt_state: Any, masks: Any) -> Any:
    """Returns the (nested) optimiser state with other masks, for example packed ones."""
    return jax.tree.map(
        lambda x: x._replace(masks=masks) if _is_state(x) else x, opt_state, is_leaf=_is_state
    )


def keep_zeros(params: Any, opt_state: Any) -> Any:
    """Returns the (nested) optimiser state with the masks that the zeros of `params` show."""

    def one(state: Any) -> Any:
        if not _is_state(state):
            return state
        masks = {path: leaf != 0 for path, leaf in _pick(params, state.masks).items()}
        return state._replace(masks=masks, sparsity=_share_pruned(masks))

    return jax.tree.map(one, opt_state, is_leaf=_is_state)


def apply_masks(params: Any, opt_state: Any) -> Any:
    """Returns parameters with exact zeros where the state's masks prune them."""
    return map_masked(lambda w, keep: jnp.where(keep, w, 0), params, masks_of(opt_state))


def forward_params(cfg: PruningConfig, params: Any, opt_state: Any) -> Any:
    """Returns the parameters that the forward pass uses: masked ones for straight-through rules."""
    if cfg.rule != "none" and make_rule(cfg).straight_through:
        return apply_masks(params, opt_state)
    return params


def map_masked(function: Any, tree: Any, masks: Flat, *rest: Any) -> Any:
    """Maps function(leaf, mask, *others) over the masked leaves; the others stay as they are."""
    leaves, structure = jax.tree.flatten(tree)
    paths = [path for path, _ in named_leaves(tree)]
    others = zip(paths, leaves, *(jax.tree.leaves(other) for other in rest), strict=True)
    return jax.tree.unflatten(
        structure,
        [
            function(leaf, masks[path], *more) if path in masks else leaf
            for path, leaf, *more in others
        ],
    )


def _is_state(x: Any) -> bool:
    return isinstance(x, PruneState)


def _share_pruned(masks: Flat) -> jax.Array:
    counts = (jnp.sum(~mask, dtype=jnp.int32).astype(jnp.float32) for mask in masks.values())
    return sum(counts, jnp.float32(0)) / sum(mask.size for mask in masks.values())


def _pick(tree: Any, paths: Any) -> Flat:
    """Returns the leaves at the given paths."""
    return {path: leaf for path, leaf in named_leaves(tree) if path in paths}


def _mask_statistics(
    inner: optax.GradientTransformation, state: Any, params: Any, masks: Flat
) -> Any:
    """Zeroes what the optimiser remembers of pruned weights: moments, accumulated gradients."""
    keep = map_masked(lambda _, mask: mask, jax.tree.map(lambda _: True, params), masks)

    def zero(statistic: Any, mask: Any) -> Any:
        if isinstance(statistic, optax.MaskedNode) or jnp.shape(mask) != statistic.shape:
            return statistic
        return jnp.where(mask, statistic, jnp.zeros_like(statistic))

    return optax.tree_utils.tree_map_params(
        inner, zero, state, keep, is_leaf=lambda x: isinstance(x, optax.MaskedNode)
    )
