"""Chooses exactly the k largest scores of each layer, by counting instead of sorting."""

import jax
import jax.numpy as jnp
from jax import lax

# The 31 bits of a float >= 0, three at a pass; the last pass overlaps so that all are alike.
_SHIFTS = tuple(max(28 - 3 * i, 0) for i in range(11))


def keep_largest(scores: list[jax.Array], keep: jax.Array) -> list[jax.Array]:
    """Returns masks that are True at the `keep` largest scores of each layer over all tensors.

    Args:
      scores: tensors (layers, rows, columns) that share the first dimension. A negative score says
        that this weight is never kept.
      keep: (layers,) int32, how many are kept in each layer over all tensors together.

    The count is exact: among equal scores those of the first tensor, first row, first column are
    kept. The threshold is found on the bit pattern of the scores, which for floats >= 0 has the
    order of the numbers: eleven passes that count eight ways, whatever the distribution. All of it
    is integer sums, so the masks do not depend on how the tensors are sharded.
    """
    threshold = _threshold(scores, keep)[:, None, None]
    rows = [_count_rows((score > threshold, score == threshold)) for score in scores]
    missing = keep - sum(jnp.sum(larger, axis=1) for larger, _ in rows)
    masks = []
    for score, (_, ties) in zip(scores, rows, strict=True):
        first = _first_ties(score, threshold, ties, missing)
        masks.append((score > threshold) | ((score == threshold) & first))
        missing = jnp.maximum(missing - jnp.sum(ties, axis=1), 0)
    return masks


def _threshold(scores: list[jax.Array], keep: jax.Array) -> jax.Array:
    """Returns per layer the largest t >= 0 with at least `keep` scores >= t; ∞ for keep = 0."""
    digits = jnp.arange(1, 8, dtype=jnp.uint32)
    shifts = jnp.asarray(_SHIFTS, jnp.uint32)

    def narrow(i: jax.Array, low: jax.Array) -> jax.Array:
        bits = low[:, None] + (digits << shifts[i])[None, :]
        at_least = lax.bitcast_convert_type(bits, jnp.float32)[:, :, None, None]
        counts = jnp.zeros(bits.shape, jnp.int32)
        for score in scores:
            per_row = _count_rows(tuple(score >= at_least[:, d] for d in range(len(digits))))
            counts += jnp.stack([jnp.sum(count, axis=1) for count in per_row], axis=1)
        digit = jnp.sum(counts >= keep[:, None], axis=1, dtype=jnp.uint32)
        return low + (digit << shifts[i])

    low = jnp.zeros(keep.shape, jnp.uint32)
    bits = lax.fori_loop(0, len(_SHIFTS), narrow, low)
    return jnp.where(keep > 0, lax.bitcast_convert_type(bits, jnp.float32), jnp.inf)


def _count_rows(conditions: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Counts each condition along the last axis, all of them in one pass over the memory."""
    # One reduction of several operands: XLA's CPU backend vectorises it, and does not fuse
    # several reductions of one operand.
    return tuple(
        lax.reduce(
            tuple(condition.astype(jnp.int32) for condition in conditions),
            (jnp.int32(0),) * len(conditions),
            lambda left, right: tuple(a + b for a, b in zip(left, right, strict=True)),
            (2,),
        )
    )


def _first_ties(
    score: jax.Array, threshold: jax.Array, per_row: jax.Array, wanted: jax.Array
) -> jax.Array:
    """Says where the first `wanted` scores equal to the threshold may lie, in row-major order."""
    before = jnp.cumsum(per_row, axis=1) - per_row
    take = jnp.clip(wanted[:, None] - before, 0, per_row)
    # At most one row a layer is taken in part, and only its columns need a running count.
    cut = jnp.argmax((take > 0) & (take < per_row), axis=1)
    row = jnp.take_along_axis(score, cut[:, None, None], axis=1) == threshold
    limit = jnp.take_along_axis(take, cut[:, None], axis=1)[:, :, None]
    columns = jnp.cumsum(row, axis=2, dtype=jnp.int32) <= limit
    is_cut = (jnp.arange(score.shape[1])[None, :] == cut[:, None])[:, :, None]
    return (take == per_row)[:, :, None] | (is_cut & columns)
