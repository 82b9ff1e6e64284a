"""Pruning rules: each is a pair of functions that choose masks; add one line here to add one."""

from sparsity.config import PruningConfig
from sparsity.rules.base import Rule, Step
from sparsity.rules.dynamic import rigl, set_evolution, static
from sparsity.rules.gradual import magnitude, magnitude_ste, random, saliency

__all__ = ["Rule", "Step", "make_rule"]

_RULES = {
    "magnitude": magnitude,
    "magnitude_ste": magnitude_ste,
    "saliency": saliency,
    "random": random,
    "static": static,
    "set": set_evolution,
    "rigl": rigl,
}


def make_rule(cfg: PruningConfig) -> Rule:
    """Returns the rule that the configuration names; it must not be `none`."""
    return _RULES[cfg.rule](cfg)
