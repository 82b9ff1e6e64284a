"""Runs layers whose parameters are stacked on axis 0."""

from collections.abc import Callable
from typing import Any

import jax

from models.functional import Module
from models.mesh import constrain

# (layer, x, key) -> x
RunLayer = Callable[[Any, jax.Array, jax.Array | None], jax.Array]


def run_layers(
    run_layer: RunLayer,
    layers: Module,
    x: jax.Array,
    *,
    key: jax.Array | None = None,
    keep: jax.Array | None = None,
    scan: bool,
    remat: str,
) -> jax.Array:
    """Applies every layer of a stack to x in turn.

    `key` is split over the layers. `keep` (L,) is non-zero where a layer runs; elsewhere x passes
    unchanged and the layer costs nothing. Where it is a float, what the layer adds to x counts
    `keep`-fold. `remat` says what the backward pass computes again:
    "none", "dots" (all but products without batch axes) or "full". Scanned and unrolled layers give
    the same numbers: one compiles in a time that does not grow with L, the other may run faster.
    """
    num_layers = jax.tree.leaves(layers)[0].shape[0]
    keys = None if key is None else jax.random.split(key, num_layers)

    def step(x: jax.Array, inputs: tuple) -> tuple[jax.Array, None]:
        layer, layer_key, layer_keep = inputs
        x = constrain(x, "residual")
        if layer_keep is None:
            return run_layer(layer, x, layer_key), None

        def run() -> jax.Array:
            y = run_layer(layer, x, layer_key)
            if not jax.numpy.issubdtype(layer_keep.dtype, jax.numpy.floating):
                return y
            return x + layer_keep.astype(x.dtype) * (y - x)

        return jax.lax.cond(layer_keep > 0, run, lambda: x), None

    if remat != "none":
        policies = jax.checkpoint_policies
        policy = policies.dots_with_no_batch_dims_saveable if remat == "dots" else None
        # Inside a scan nothing can undo the recomputation, so that XLA need not be held back.
        step = jax.checkpoint(step, policy=policy, prevent_cse=not scan)
    if scan:
        return jax.lax.scan(step, x, (layers, keys, keep))[0]
    for inputs in _unstack((layers, keys, keep), num_layers):
        x, _ = step(x, inputs)
    return x


def _unstack(tree: Any, num_layers: int) -> list[Any]:
    """Splits every leaf along axis 0; the transpose is one concatenation, not L padded sums."""
    leaves, structure = jax.tree.flatten(tree)
    split = [[part[0] for part in jax.lax.split(leaf, [1] * num_layers)] for leaf in leaves]
    return [jax.tree.unflatten(structure, parts) for parts in zip(*split, strict=True)]
