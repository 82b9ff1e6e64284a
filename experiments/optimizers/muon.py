"""Muon for the matrices of the layers, Adam for all else, under one learning rate."""

from typing import Any

import jax
import optax

from experiments.config import OptimizerConfig
from sparsity.plan import is_stacked, named_leaves

# Momentum of the orthogonalised updates (Jordan et al. 2024, Muon), and their root mean square,
# which makes a learning rate mean what it means for Adam (Liu et al. 2025, arXiv 2502.16982, 2.2).
_MOMENTUM = 0.95
_UPDATE_RMS = 0.2


def scale_by_muon_and_adam(cfg: OptimizerConfig) -> optax.GradientTransformation:
    """Returns optax's Muon over each layer's matrices; embeddings, logits and vectors get Adam."""
    muon = optax.chain(
        optax.contrib.scale_by_muon(beta=_MOMENTUM, weight_dimension_numbers=_matrix_axes),
        optax.stateless(lambda updates, params: jax.tree.map(_to_rms, updates)),
    )
    adam = optax.scale_by_adam(cfg.beta1, cfg.beta2, cfg.epsilon)
    return optax.partition({"muon": muon, "adam": adam}, _labels)


def _to_rms(update: jax.Array) -> jax.Array:
    """Scales orthogonal matrices, whose entries have a mean square of 1 / the longer side."""
    return update * (_UPDATE_RMS * max(update.shape[-2:]) ** 0.5)


def _labels(params: Any) -> Any:
    labels = [
        "muon" if is_stacked(path) and leaf.ndim == 3 else "adam"
        for path, leaf in named_leaves(params)
    ]
    return jax.tree.unflatten(jax.tree.structure(params), labels)


def _matrix_axes(updates: Any) -> Any:
    """Axis 0 stacks layers: each layer's (in, out) matrix is orthogonalised by itself."""
    axes = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=2)
    return jax.tree.map(lambda _: axes, updates)
