"""Cross-entropy in float32, as sums and counts."""

import jax
import jax.numpy as jnp

# Name of a metric -> (sum, count); both are scalars, or (B,) where losses are asked per example.
Sums = dict[str, tuple[jax.Array, jax.Array]]


def token_losses(
    logits_XV: jax.Array,
    labels_X: jax.Array,
    *,
    z_loss: float = 0.0,
    label_smoothing: float = 0.0,
) -> dict[str, jax.Array]:
    """Returns `loss`, `nll` and `accuracy` of each prediction, float32 (X) for logits (X, V).

    `nll` = log Z - logit[label] with log Z = logsumexp(logits). `loss` is the cross-entropy to the
    label smoothed by e, i.e. (1 - e) nll + e mean_v(log Z - logit[v]) (Szegedy et al. 2016, arXiv
    1512.00567, section 7), plus z_loss (log Z)^2 (Shazeer et al. 2018, arXiv 1811.02084, appendix).
    `accuracy` is 1 where no logit is greater than the label's.
    """
    logits_XV = logits_XV.astype(jnp.float32)
    max_X = jax.lax.stop_gradient(jnp.max(logits_XV, axis=-1))
    shifted_XV = logits_XV - max_X[..., None]
    log_sum_X = jnp.log(jnp.sum(jnp.exp(shifted_XV), axis=-1))
    # Comparing and summing, unlike indexing, has a transpose that fuses, and may be sharded over V.
    ids_XV = jax.lax.broadcasted_iota(jnp.int32, logits_XV.shape, logits_XV.ndim - 1)
    label_X = jnp.sum(jnp.where(ids_XV == labels_X[..., None], shifted_XV, 0.0), axis=-1)
    nll_X = log_sum_X - label_X
    loss_X = nll_X
    if label_smoothing:
        uniform_X = log_sum_X - jnp.mean(shifted_XV, axis=-1)
        loss_X = (1.0 - label_smoothing) * nll_X + label_smoothing * uniform_X
    if z_loss:
        loss_X += z_loss * jnp.square(log_sum_X + max_X)
    correct_X = (label_X >= 0.0).astype(jnp.float32)
    return {"loss": loss_X, "nll": nll_X, "accuracy": correct_X}


def weighted_sums(
    values: dict[str, jax.Array], weights: jax.Array, *, per_example: bool = False
) -> Sums:
    """Sums values (B, ...) times weights (B, ...) and the weights, over all or per example."""
    axes = tuple(range(1 if per_example else 0, weights.ndim))
    weights = weights.astype(jnp.float32)
    count = jnp.sum(weights, axis=axes)
    # A prediction without weight may be anything, even infinite.
    return {
        name: (jnp.sum(jnp.where(weights > 0, weights * value, 0.0), axis=axes), count)
        for name, value in values.items()
    }
