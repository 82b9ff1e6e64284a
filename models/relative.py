"""T5's relative position bias: one learned number per bucket of distances and head."""

import jax
import jax.numpy as jnp
import numpy as np


def distance_buckets(num_buckets: int, max_distance: int) -> np.ndarray:
    """Returns the bucket of every distance 0 ... max_distance, int32 (max_distance + 1,).

    The first half of the buckets holds one distance each, the second half logarithmically growing
    ranges up to max_distance, from which on all share the last one (arXiv 1910.10683, section 2.1;
    formula as in Mesh TensorFlow's `_relative_position_bucket`).
    """
    num_exact = num_buckets // 2
    distances = np.arange(max_distance + 1)
    growth = np.log(np.maximum(distances, 1) / num_exact) / np.log(max_distance / num_exact)
    # A distance on the edge of a bucket opens it, whichever way its logarithm was rounded.
    logarithmic = num_exact + np.floor(growth * (num_buckets - num_exact) + 1e-9)
    buckets = np.where(distances < num_exact, distances, np.minimum(logarithmic, num_buckets - 1))
    return buckets.astype(np.int32)


def position_buckets(
    relative_position: jax.Array, *, bidirectional: bool, num_buckets: int, max_distance: int
) -> jax.Array:
    """Maps key position - query position, int32 of any shape, to buckets in [0, num_buckets).

    A bidirectional table gives its upper half to keys after the query; otherwise these count as
    distance 0, because a causal mask hides them.
    """
    ahead = relative_position > 0
    if bidirectional:
        num_buckets //= 2
        distance = jnp.abs(relative_position)
        offset = jnp.where(ahead, num_buckets, 0)
    else:
        distance = jnp.where(ahead, 0, -relative_position)
        offset = jnp.zeros_like(relative_position)
    table = jnp.asarray(distance_buckets(num_buckets, max_distance))
    return offset + jnp.take(table, jnp.minimum(distance, max_distance))


def relative_bias(
    table: jax.Array,
    query_positions_T: jax.Array,
    key_positions_S: jax.Array,
    *,
    bidirectional: bool,
    max_distance: int,
) -> jax.Array:
    """Returns what is added to the attention logits, float32 (1, H, T, S); table (buckets, H).

    Packed sequences need no positions of their own: only differences within one segment matter.
    """
    num_buckets = table.shape[0]
    buckets_TS = position_buckets(
        key_positions_S[None, :] - query_positions_T[:, None],
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    # A product with one-hot rows, because the transpose of a gather (a scatter) runs serially.
    one_hot_TSN = jax.nn.one_hot(buckets_TS, num_buckets, dtype=jnp.float32)
    return jnp.einsum("tsn,nh->hts", one_hot_TSN, table.astype(jnp.float32))[None]
