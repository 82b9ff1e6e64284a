"""The soft form: gates that mix all leaves in training, and one leaf in evaluation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fff.config import FFFConfig
from fff.xla import goes_right
from models.layers import ACTIVATIONS, broadcast_last, dense

# Shape suffixes: T tokens, D width, N gates in heap order, F leaves, W width of a leaf.

# Below this the entropy of a gate is taken to be that of this probability.
_LOWEST_PROBABILITY = 1e-6


class SoftTree(NamedTuple):
    """Weights of one tree; biases are None in a layer without."""

    # Gates.
    gate_ND: jax.Array
    gate_bias_N: jax.Array | None
    # Leaves: each a feedforward block of its own.
    in_FDW: jax.Array
    in_bias_FW: jax.Array | None
    out_FWD: jax.Array
    out_bias_FD: jax.Array | None


class Mixed(NamedTuple):
    """What the soft form gives in training."""

    # (T, D)
    y_TD: jax.Array
    # Σ over tokens and gates of a gate's entropy in nats, float32 ().
    entropy: jax.Array


def soft_mixture(
    cfg: FFFConfig, x_TD: jax.Array, tree: SoftTree, key: jax.Array | None = None
) -> Mixed:
    """Returns Σ over leaves of π(leaf) leaf(x) (Belcak and Wattenhofer 2023, 2308.14711, eq. 1).

    π is the product of the gates' probabilities along the way to the leaf: c = sigmoid(gate) to the
    right, 1 - c to the left. With a key and `region_leak`, c and 1 - c are swapped by chance for
    each token and gate. All leaves are computed.
    """
    right_TN = jax.nn.sigmoid(gate_logits(x_TD, tree))
    p_TN = jnp.clip(right_TN, _LOWEST_PROBABILITY, 1 - _LOWEST_PROBABILITY)
    entropy = -jnp.sum(p_TN * jnp.log(p_TN) + (1 - p_TN) * jnp.log1p(-p_TN))
    if cfg.train_hardened:
        right_TN = goes_right(cfg, gate_logits(x_TD, tree)).astype(right_TN.dtype)
    if key is not None and cfg.region_leak:
        is_swapped = jax.random.bernoulli(key, cfg.region_leak, right_TN.shape)
        right_TN = jnp.where(is_swapped, 1 - right_TN, right_TN)
    share_TF = leaf_shares(cfg, right_TN).astype(x_TD.dtype)
    h_TFW = jnp.einsum("td,fdw->tfw", x_TD, tree.in_FDW.astype(x_TD.dtype))
    if tree.in_bias_FW is not None:
        h_TFW += tree.in_bias_FW.astype(x_TD.dtype)[None]
    h_TFW = ACTIVATIONS[cfg.activation](h_TFW) * share_TF[:, :, None]
    y_TD = jnp.einsum("tfw,fwd->td", h_TFW, tree.out_FWD.astype(x_TD.dtype))
    if tree.out_bias_FD is not None:
        y_TD += dense(share_TF, tree.out_bias_FD)
    return Mixed(y_TD, entropy)


def hard_leaf(cfg: FFFConfig, x_TD: jax.Array, tree: SoftTree) -> jax.Array:
    """Returns the output of the one leaf to which the gates lead, all biases added (T, D).

    A gate of NaN leads to the left. The released code leaves out the last bias here.
    """
    node_T = jnp.zeros(x_TD.shape[0], jnp.int32)
    x32_TD = x_TD.astype(jnp.float32)
    for _ in range(cfg.depth):
        rows_TD = tree.gate_ND[node_T].astype(jnp.float32)
        logit_T = jnp.sum(rows_TD * x32_TD, axis=-1)
        if tree.gate_bias_N is not None:
            logit_T += tree.gate_bias_N[node_T].astype(jnp.float32)
        node_T = 2 * node_T + 1 + goes_right(cfg, logit_T)
    leaf_T = node_T - (2**cfg.depth - 1)
    h_TW = jnp.einsum("td,tdw->tw", x_TD, tree.in_FDW[leaf_T].astype(x_TD.dtype))
    if tree.in_bias_FW is not None:
        h_TW += tree.in_bias_FW[leaf_T].astype(x_TD.dtype)
    h_TW = ACTIVATIONS[cfg.activation](h_TW)
    y_TD = jnp.einsum("tw,twd->td", h_TW, tree.out_FWD[leaf_T].astype(x_TD.dtype))
    if tree.out_bias_FD is not None:
        y_TD += tree.out_bias_FD[leaf_T].astype(x_TD.dtype)
    return y_TD


def gate_logits(x_TD: jax.Array, tree: SoftTree) -> jax.Array:
    """Returns the logits of all gates, float32 (T, N)."""
    logit_TN = jax.lax.dot_general(
        x_TD.astype(jnp.float32), tree.gate_ND.astype(jnp.float32), (((1,), (1,)), ((), ()))
    )
    if tree.gate_bias_N is not None:
        logit_TN += broadcast_last(tree.gate_bias_N.astype(jnp.float32), 2)
    return logit_TN


def leaf_shares(cfg: FFFConfig, right_TN: jax.Array) -> jax.Array:
    """Returns each leaf's share in the mixture (T, F), from each gate's share to the right."""
    share = jnp.ones((right_TN.shape[0], 1), right_TN.dtype)
    for level in range(cfg.depth):
        first = 2**level - 1
        right = right_TN[:, first : first + 2**level]
        share = jnp.stack([share * (1 - right), share * right], axis=-1)
        share = share.reshape(right_TN.shape[0], 2 ** (level + 1))
    return share


@jax.custom_vjp
def with_loss(y: jax.Array, loss: jax.Array) -> jax.Array:
    """Returns y, and adds `loss` to whatever y is differentiated for.

    A layer has no way to give the model a term of the loss; its gradient is all that training
    needs. Reported losses do not hold the term.
    """
    return y


def _with_loss_forward(y: jax.Array, loss: jax.Array) -> tuple[jax.Array, jax.Array]:
    return y, jnp.ones_like(loss)


def _with_loss_backward(one: jax.Array, grad_y: jax.Array) -> tuple[jax.Array, jax.Array]:
    return grad_y, one


with_loss.defvjp(_with_loss_forward, _with_loss_backward)
