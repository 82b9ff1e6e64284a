"""A small training run under a pruning rule, every step of it recorded."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sparsity.config import PruningConfig
from sparsity.plan import named_leaves
from sparsity.prune import apply_masks, forward_params, masks_of, prune

STEPS = 24
HALF = STEPS // 2
QUICK_TO_COMPILE = {"xla_backend_optimization_level": 0}


class Run(NamedTuple):
    """States at the start, half-way and the end; arrays by path with a leading axis of steps."""

    start: Any
    middle: Any
    end: Any
    masks: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    first_moment: dict[str, np.ndarray]


def small_tree() -> dict:
    """Stacked, plain, tuple and list leaves; vectors, norms and tables that are never pruned."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return {
        "encoder": {"layers": {"mlp": {"wi": normal(2, 8, 16)}, "norm": normal(2, 8)}},
        "head": (normal(16, 8), [normal(8), jnp.float32(0.5)]),
        "relative_bias": normal(8, 4),
    }


def adam() -> optax.GradientTransformation:
    """An optimiser with moments, and decay on the matrices only."""
    decay = optax.add_decayed_weights(
        0.01, mask=lambda tree: jax.tree.map(lambda x: jnp.ndim(x) > 1, tree)
    )
    return optax.chain(optax.scale_by_adam(b1=0.9), decay, optax.scale(-0.05))


def loss(params: Any, step: jax.Array) -> jax.Array:
    """A quadratic whose target moves, so that every gradient is dense and no two are alike."""

    def one(x: jax.Array) -> jax.Array:
        place = jnp.arange(x.size, dtype=jnp.float32).reshape(x.shape)
        return jnp.sum((x - jnp.cos(7.0 * place + step)) ** 2)

    return sum(one(x) for x in jax.tree.leaves(params))


class Trainer:
    """A run of STEPS steps; `advance` does half of them, from any first step, in one program."""

    def __init__(self, cfg: PruningConfig, accumulate: str = "no"):
        self.cfg = cfg
        inner = adam()
        if accumulate == "inside":
            inner = optax.MultiSteps(inner, 2).gradient_transformation()
        self.tx = prune(inner, cfg, jax.random.key(3))
        if accumulate == "outside":
            self.tx = optax.MultiSteps(self.tx, 2).gradient_transformation()
        # Compiling is what these tests spend their time on.
        self.init = jax.jit(self._init, compiler_options=QUICK_TO_COMPILE)
        self.advance = jax.jit(self._advance, compiler_options=QUICK_TO_COMPILE)

    def _init(self) -> tuple[Any, Any]:
        params = small_tree()
        opt = self.tx.init(params)
        return apply_masks(params, opt), opt

    def _advance(self, state: Any, first: jax.Array) -> tuple[Any, Any]:
        return jax.lax.scan(self._step, state, first + jnp.arange(HALF))

    def _step(self, state: Any, step: jax.Array) -> tuple[Any, Any]:
        params, opt = state
        key = jax.random.fold_in(jax.random.key(1), step)
        grads = jax.grad(loss)(forward_params(self.cfg, params, opt), step)
        updates, opt = self.tx.update(
            grads,
            opt,
            params,
            progress=step.astype(jnp.float32) / STEPS,
            next_progress=(step + 1).astype(jnp.float32) / STEPS,
            key=key,
        )
        params = optax.apply_updates(params, updates)
        masks = masks_of(opt)
        moments = optax.tree_utils.tree_get(opt, "mu")
        record = [
            {path: leaf for path, leaf in named_leaves(tree) if path in masks}
            for tree in (params, grads, moments)
        ]
        return (params, opt), (masks, *record)

    def run(self) -> Run:
        start = self.init()
        middle, first = self.advance(start, jnp.int32(0))
        end, second = self.advance(middle, jnp.int32(HALF))
        records = jax.tree.map(lambda *halves: np.concatenate(halves), first, second)
        return Run(start, middle, end, *records)
