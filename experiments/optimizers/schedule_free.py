"""Schedule-free AdamW: optax's, told its learning rate by progress (arXiv 2405.15682)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from experiments.config import OptimizerConfig
from experiments.optimizers.rate import learning_rate

_State = optax.contrib.ScheduleFreeState


def schedule_free(
    cfg: OptimizerConfig, base: optax.GradientTransformationExtraArgs
) -> optax.GradientTransformationExtraArgs:
    """Wraps `base`, which has no momentum and has its learning rate applied already.

    Gradients are taken at y; z follows the base updates; x, their average, is what the model
    answers with (`evaluation_params`). β₁ of the configuration is the interpolation of y.
    """

    def wrapped(progress: jax.Array) -> optax.GradientTransformationExtraArgs:
        # optax asks for a rate as a function of its own count of steps.
        return optax.contrib.schedule_free(
            base, lambda _: learning_rate(cfg, progress), b1=cfg.beta1
        )

    def update(
        grads: Any, state: Any, params: Any = None, *, progress: jax.Array, **extra: Any
    ) -> tuple[Any, Any]:
        return wrapped(progress).update(grads, state, params, progress=progress, **extra)

    return optax.GradientTransformationExtraArgs(wrapped(jnp.float32(0)).init, update)


def evaluation_params(params: Any, opt_state: Any) -> Any:
    """Returns the parameters to evaluate: the average x for schedule-free, else `params`."""
    leaves = jax.tree.leaves(opt_state, is_leaf=_is_state)
    state = next((leaf for leaf in leaves if _is_state(leaf)), None)
    return optax.contrib.schedule_free_eval_params(state, params) if state else params


def _is_state(node: Any) -> bool:
    return isinstance(node, _State)
