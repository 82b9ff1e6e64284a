"""Where zeros may lie: scores in, scores or units that respect the pattern out."""

import jax
import jax.numpy as jnp

from sparsity.config import Pattern


def nm_members(score: jax.Array, kept: int, group: int, axis: int) -> jax.Array:
    """Returns a mask that is True at the `kept` largest of every `group` scores along `axis`.

    `axis` is −2 (the contraction axis of a matrix stored (in, out)) or −1 (the output axis); equal
    scores go by position, so that every group holds exactly `kept`.
    """
    if axis == -1:
        return nm_members(score.swapaxes(-1, -2), kept, group, -2).swapaxes(-1, -2)
    *lead, rows, columns = score.shape
    grouped = score.reshape(*lead, rows // group, group, columns)
    this, other = grouped[..., :, None, :], grouped[..., None, :, :]
    place = jnp.arange(group)
    earlier = jnp.expand_dims(place[None, :] < place[:, None], (*range(len(lead) + 1), -1))
    rank = jnp.sum((other > this) | ((other == this) & earlier), axis=-2, dtype=jnp.int32)
    return (rank < kept).reshape(score.shape)


def block_scores(score: jax.Array, rows: int, columns: int) -> jax.Array:
    """Returns the mean score of each block of a (layers, rows, columns) array."""
    layers, height, width = score.shape
    blocks = score.reshape(layers, height // rows, rows, width // columns, columns)
    return jnp.mean(blocks, axis=(2, 4))


def spread_blocks(mask: jax.Array, rows: int, columns: int) -> jax.Array:
    """Returns a mask of weights from a mask of blocks; the inverse of `block_scores`' pooling."""
    return jnp.repeat(jnp.repeat(mask, rows, axis=-2), columns, axis=-1)


def respects(mask: jax.Array, pattern: Pattern, axis: int) -> jax.Array:
    """Says whether a mask (…, rows, columns) has exactly the pattern, as a scalar bool."""
    if pattern.kind == "n:m":
        kept, group = pattern.shape
        aligned = mask if axis == -1 else mask.swapaxes(-1, -2)
        groups = aligned.reshape(*aligned.shape[:-1], aligned.shape[-1] // group, group)
        return jnp.all(jnp.sum(groups, axis=-1, dtype=jnp.int32) == kept)
    if pattern.kind == "block":
        rows, columns = pattern.shape
        firsts = mask[..., ::rows, ::columns]
        return jnp.all(spread_blocks(firsts, rows, columns) == mask)
    return jnp.bool_(True)
