"""Optimisers by configuration; every learning rate is a function of progress in [0, 1]."""

import jax
import optax

from experiments.config import OptimizerConfig
from experiments.optimizers.muon import scale_by_muon_and_adam
from experiments.optimizers.rate import learning_rate, scale_by_progress
from experiments.optimizers.scales import clip_by_global_norm, clip_by_rms, is_matrix, scale_by_rms
from experiments.optimizers.schedule_free import schedule_free
from experiments.optimizers.sophia import scale_by_sophia
from sparsity.adafactor import scale_by_sparse_adafactor
from sparsity.config import PruningConfig
from sparsity.prune import prune

__all__ = ["learning_rate", "make_optimizer"]

# AdaFactor's increasing decay of the second moment, 1 − t^−0.8 (Shazeer & Stern 2018, section 7.2).
_ADAFACTOR_DECAY_RATE = 0.8


def make_optimizer(
    cfg: OptimizerConfig, pruning: PruningConfig | None, seed: int = 0
) -> optax.GradientTransformationExtraArgs:
    """The optimiser of an experiment; `update` also takes progress, next_progress and key.

    `seed` draws the first masks of pruning rules that start sparse.
    """
    parts = [clip_by_global_norm(cfg.clip_norm)] if cfg.clip_norm > 0 else []
    parts.append(_direction(cfg))
    if cfg.scale_by_rms and cfg.name != "adafactor":
        parts.append(scale_by_rms())
    if cfg.weight_decay > 0:
        parts.append(optax.add_decayed_weights(cfg.weight_decay, mask=is_matrix))
    parts.append(scale_by_progress(cfg))
    inner = optax.with_extra_args_support(optax.chain(*parts))
    if cfg.name == "schedule_free":
        inner = schedule_free(cfg, inner)
    return prune(inner, pruning, jax.random.key(seed)) if pruning else inner


def _direction(cfg: OptimizerConfig) -> optax.GradientTransformation:
    """What is subtracted from the parameters, before decay, scale and learning rate."""
    if cfg.name == "adamw":
        return optax.scale_by_adam(cfg.beta1, cfg.beta2, cfg.epsilon)
    if cfg.name == "lion":
        return optax.scale_by_lion(cfg.beta1, cfg.beta2)
    if cfg.name == "muon":
        return scale_by_muon_and_adam(cfg)
    if cfg.name == "schedule_free":
        # The momentum is schedule_free's own.
        return optax.scale_by_rms(cfg.beta2, cfg.epsilon, eps_in_sqrt=False, bias_correction=True)
    if cfg.name in ("sophia_g", "sophia_h"):
        return scale_by_sophia(cfg)
    if cfg.factored:
        scale = optax.scale_by_factored_rms(decay_rate=_ADAFACTOR_DECAY_RATE)
        return optax.chain(scale, clip_by_rms(), scale_by_rms())
    return scale_by_sparse_adafactor(_ADAFACTOR_DECAY_RATE)
