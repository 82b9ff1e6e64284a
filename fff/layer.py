"""Fast feedforward layers as the feedforward block of a model, in both published forms."""

import jax
import jax.numpy as jnp

from fff.config import FFFConfig
from fff.kernels import choose_kernel, choose_training, hard_path
from fff.soft import SoftTree, hard_leaf, soft_mixture, with_loss
from fff.tables import Tables
from models.functional import Module, Param
from models.layers import MakeMlp

# Standard deviation of every matrix where `init` is "normal".
_STANDARD_DEVIATION = 0.02


class HardFFF(Module):
    """K trees of which each token passes one path, y = Σ over its nodes of act(w_in x + b) w_out.

    Belcak and Wattenhofer 2023 (arXiv 2311.10770), section 2: the same in training and evaluation;
    no output bias, no gradient through the choice. A neuron is a row of `node_in` and one of
    `node_out`, both (K nodes, D), since a token reads few neurons but whole ones. Called with a
    key, as in training, it uses `training`'s kernel, without one `kernel`'s.
    """

    def __init__(self, key: jax.Array, cfg: FFFConfig, model_dim: int, dtype: str = "float32"):
        key_in, key_bias, key_out = jax.random.split(key, 3)
        rows = cfg.trees * cfg.nodes_per_tree
        # The bound of node_out's is that of a product with the neurons that one token uses.
        self.node_in = Param(_init(cfg, key_in, (rows, model_dim), model_dim, dtype))
        if cfg.use_bias:
            self.node_in_bias = Param(_init_bias(cfg, key_bias, (rows,), model_dim, dtype))
        self.node_out = Param(_init(cfg, key_out, (rows, model_dim), cfg.used_neurons, dtype))
        self.cfg = cfg

    def __call__(self, x_BTD: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        cfg, node_in = self.cfg, self.node_in[...]
        bias = self.node_in_bias[...] if cfg.use_bias else jnp.zeros(len(node_in), node_in.dtype)
        kernel = choose_kernel(cfg) if key is None else choose_training(cfg)
        return hard_path(cfg, x_BTD, Tables(node_in, bias, self.node_out[...]), kernel)


class SoftFFF(Module):
    """Gates over 2^depth leaves: a soft mixture with a key (training), one leaf without one.

    Belcak and Wattenhofer 2023 (arXiv 2308.14711), algorithm 1. `hardening` times the gates'
    entropy, summed over tokens, is added to the summed loss.
    """

    def __init__(self, key: jax.Array, cfg: FFFConfig, model_dim: int, dtype: str = "float32"):
        keys = jax.random.split(key, 6)
        gates, leaves, width = cfg.nodes_per_tree, 2**cfg.depth, cfg.leaf_width
        self.gate = Param(_init(cfg, keys[0], (gates, model_dim), model_dim, dtype))
        self.leaf_in = Param(_init(cfg, keys[1], (leaves, model_dim, width), model_dim, dtype))
        self.leaf_out = Param(_init(cfg, keys[2], (leaves, width, model_dim), width, dtype))
        if cfg.use_bias:
            self.gate_bias = Param(_init_bias(cfg, keys[3], (gates,), model_dim, dtype))
            self.leaf_in_bias = Param(_init_bias(cfg, keys[4], (leaves, width), model_dim, dtype))
            self.leaf_out_bias = Param(_init_bias(cfg, keys[5], (leaves, model_dim), width, dtype))
        self.cfg = cfg

    def __call__(self, x_BTD: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        cfg, x_TD = self.cfg, x_BTD.reshape(-1, x_BTD.shape[-1])
        tree = SoftTree(
            gate_ND=self.gate[...],
            gate_bias_N=self.gate_bias[...] if cfg.use_bias else None,
            in_FDW=self.leaf_in[...],
            in_bias_FW=self.leaf_in_bias[...] if cfg.use_bias else None,
            out_FWD=self.leaf_out[...],
            out_bias_FD=self.leaf_out_bias[...] if cfg.use_bias else None,
        )
        if key is None:
            return hard_leaf(cfg, x_TD, tree).reshape(x_BTD.shape)
        y_TD, entropy = soft_mixture(cfg, x_TD, tree, key)
        if cfg.hardening:
            gates = cfg.nodes_per_tree if cfg.hardening_over == "mean" else 1
            y_TD = with_loss(y_TD, cfg.hardening / gates * entropy)
        return y_TD.reshape(x_BTD.shape)


class NoFeedforward(Module):
    """Gives zeros, so that a layer is its attention alone."""

    def __call__(self, x_BTD: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
        del key
        return jnp.zeros_like(x_BTD)


def make_mlp(cfg: FFFConfig, model_dim: int, dtype: str = "float32") -> MakeMlp:
    """Returns what builds this layer in the place of a model's feedforward block."""
    cfg.check()
    if cfg.form == "none":
        return lambda key: NoFeedforward()
    form = HardFFF if cfg.form == "hard" else SoftFFF
    return lambda key: form(key, cfg, model_dim, dtype)


def _init(
    cfg: FFFConfig, key: jax.Array, shape: tuple[int, ...], fan_in: int, dtype: str
) -> jax.Array:
    if cfg.init == "normal":
        return _STANDARD_DEVIATION * jax.random.normal(key, shape, dtype)
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


def _init_bias(
    cfg: FFFConfig, key: jax.Array, shape: tuple[int, ...], fan_in: int, dtype: str
) -> jax.Array:
    if cfg.init == "normal":
        return jnp.zeros(shape, dtype)
    return _init(cfg, key, shape, fan_in, dtype)
