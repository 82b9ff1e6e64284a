"""Chooses exactly the k largest scores of each layer, by counting instead of sorting."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

# The 31 bits of a float >= 0, three at a pass; the last pass overlaps so that all are alike.
_SHIFTS = tuple(max(28 - 3 * i, 0) for i in range(11))
_ABOVE_ALL = 2**31 - 2


class Score(NamedTuple):
    """Scores as an elementwise function and its operands, so that no array of them is stored.

    A negative score says that this weight is never kept.
    """

    function: Callable[..., jax.Array]
    operands: tuple[jax.Array, ...]

    def values(self) -> jax.Array:
        """Returns the scores as a float32 array."""
        return self.function(*self.operands).astype(jnp.float32)

    def bits(self) -> jax.Array:
        """Returns the scores as int32 of the same order: negative ones below 0, NaN above all."""
        return lax.bitcast_convert_type(self.values(), jnp.int32)

    def map(self, change: Callable[[jax.Array], jax.Array]) -> "Score":
        """Returns the same scores of operands that were reshaped or sliced alike."""
        return Score(self.function, tuple(change(operand) for operand in self.operands))


def where_mask(mask: jax.Array, kept: Any, pruned: Any) -> jax.Array:
    """Returns jnp.where(mask, kept, pruned), three times as fast inside a score.

    XLA's CPU backend does not vectorise a loop over both booleans and floats; as integers of the
    floats' width it does.
    """
    return jnp.where(mask.astype(jnp.uint8).astype(jnp.int32) > 0, kept, pruned)


def keep_largest(scores: list[Score], keep: jax.Array) -> list[jax.Array]:
    """Returns masks that are True at the `keep` largest scores of each layer over all tensors.

    Args:
      scores: of tensors (layers, rows, columns) that share the first dimension.
      keep: (layers,) int32, how many are kept in each layer over all tensors together.

    The count is exact: among equal scores those of the first tensor, first row, first column are
    kept. The threshold is found on the bit pattern of the scores, which for floats >= 0 has the
    order of the numbers: eleven passes that count eight ways, whatever the distribution. All of it
    is integer sums, so the masks do not depend on how the tensors are sharded.
    """
    threshold = _threshold(scores, keep)[:, None, None]
    rows = [_count_rows((score.bits() > threshold, score.bits() == threshold)) for score in scores]
    missing = keep - sum(jnp.sum(larger, axis=1) for larger, _ in rows)
    masks = []
    for score, (_, ties) in zip(scores, rows, strict=True):
        masks.append(score.bits() >= _threshold_with_ties(score, threshold, ties, missing))
        missing = jnp.maximum(missing - jnp.sum(ties, axis=1), 0)
    return masks


def _threshold(scores: list[Score], keep: jax.Array) -> jax.Array:
    """Returns per layer the largest t >= 0 (as bits) with at least `keep` scores >= t."""
    digits = jnp.arange(1, 8)
    shifts = jnp.asarray(_SHIFTS)

    def narrow(i: jax.Array, low: jax.Array) -> jax.Array:
        candidates = low[:, None] + (digits << shifts[i])[None, :]
        counts = jnp.zeros(candidates.shape, jnp.int32)
        for score in scores:
            # Tied to the loop's variable, or XLA would store the scores before the loop.
            operands, at_least = lax.optimization_barrier((score.operands, candidates))
            bits = Score(score.function, operands).bits()
            per_row = _count_rows(
                tuple(bits >= at_least[:, d, None, None] for d in range(len(digits)))
            )
            counts += jnp.stack([jnp.sum(count, axis=1) for count in per_row], axis=1)
        digit = jnp.sum(counts >= keep[:, None], axis=1, dtype=jnp.int32)
        return low + (digit << shifts[i])

    bits = lax.fori_loop(0, len(_SHIFTS), narrow, jnp.zeros(keep.shape, jnp.int32))
    return jnp.where(keep > 0, bits, _ABOVE_ALL)


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


def _threshold_with_ties(
    score: Score, threshold: jax.Array, ties: jax.Array, wanted: jax.Array
) -> jax.Array:
    """Returns thresholds that let through the first `wanted` ties of a layer, in row-major order.

    `ties` counts the scores equal to the threshold in each row, (layers, rows).
    """
    before = jnp.cumsum(ties, axis=1) - ties
    take = jnp.clip(wanted[:, None] - before, 0, ties)
    # At most one row a layer is taken in part, and only its columns need a running count.
    cut = jnp.argmax((take > 0) & (take < ties), axis=1)
    row = score.map(lambda x: jnp.take_along_axis(x, cut[:, None, None], axis=1))
    running = jnp.cumsum(row.bits() == threshold, axis=2, dtype=jnp.int32)
    taken = jnp.take_along_axis(take, cut[:, None], axis=1)[:, :, None]
    of_cut_row = jnp.where(running <= taken, threshold, threshold + 1)
    of_row = jnp.where((take == ties)[:, :, None], threshold, threshold + 1)
    is_cut = (jnp.arange(ties.shape[1])[None, :] == cut[:, None])[:, :, None]
    return jnp.where(is_cut, of_cut_row, of_row)
