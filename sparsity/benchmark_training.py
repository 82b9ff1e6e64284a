"""Times mask updates and pruned training steps against what they are to be compared with."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax

from models.api import build
from models.presets import BERT_BASE
from sparsity.bits import pack
from sparsity.config import PruningConfig
from sparsity.plan import make_plan, named_leaves
from sparsity.prune import masks_of, prune
from sparsity.rules import Step, make_rule
from sparsity.select import Selector

_INTERVAL = 100
_TOKENS = 512
CONFIGS = {
    "unstructured 75 %": PruningConfig(
        rule="magnitude", sparsity=0.75, update_every_steps=_INTERVAL
    ),
    "2:4": PruningConfig(
        rule="magnitude", sparsity=0.5, pattern="2:4", update_every_steps=_INTERVAL
    ),
}


class Row(TypedDict):
    """A median over rounds, and its ratio to the reference of the same round."""

    name: str
    seconds: float
    ratio: float
    ratio_range: tuple[float, float]


class Overhead(TypedDict):
    """What choosing masks every 100 steps adds to a training step, in time and in memory."""

    name: str
    # Seconds that a choice of masks adds to its step, over 100 dense steps; the range over rounds.
    choosing: float
    choosing_range: tuple[float, float]
    # Bytes a pruned weight: of the masks, and of a whole step's peak above that of a dense one.
    held_bytes: float
    peak_bytes: float
    # Bits a pruned weight that masks take in a checkpoint.
    checkpoint_bits: float


def mask_updates(rounds: int) -> list[Row]:
    """Times the choice of all masks of a 100-million-weight tree against one product pass over it.

    The tree has the matrices of BERT-base's layers and an embedding table; a product pass
    multiplies 512 tokens with every matrix once, and is the reference.
    """
    shapes = {
        "layers": {
            "attention": dict.fromkeys(("query", "key", "value", "out"), (12, 768, 768)),
            "mlp": {"wi": (12, 768, 3072), "wo": (12, 3072, 768)},
        },
        "head": (19712, 768),
    }
    leaves, structure = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
    keys = jax.random.split(jax.random.key(0), len(leaves))
    arrays = [jax.random.normal(k, shape) for k, shape in zip(keys, leaves, strict=True)]
    weights = jax.tree.unflatten(structure, arrays)
    tokens = {size: jax.random.normal(keys[0], (_TOKENS, size)) for size in (768, 3072, 19712)}

    @jax.jit
    def product(weights: Any) -> Any:
        def one(w: jax.Array) -> jax.Array:
            return tokens[w.shape[-2]] @ w

        return [one(w) if w.ndim == 2 else jax.lax.map(one, w) for w in jax.tree.leaves(weights)]

    runs: dict[str, Callable[[], Any]] = {"one product pass": lambda: product(weights)}
    for name, cfg in CONFIGS.items():
        runs[name] = _mask_update(cfg, weights)
    return _rows(interleave(runs, rounds), "one product pass")


def _mask_update(cfg: PruningConfig, weights: Any) -> Callable[[], Any]:
    plan = make_plan(cfg, weights)
    flat = dict(named_leaves(weights))
    masks = {path: jnp.ones(leaf.shape, bool) for path, leaf in flat.items()}

    @jax.jit
    def choose(weights: Any, masks: Any, share: jax.Array) -> Any:
        step = Step(weights, weights, masks, key=None, share=share, phase=share)
        return make_rule(cfg).update(step, Selector(cfg, plan))

    return lambda: choose(flat, masks, jnp.float32(0.7))


def training_steps(layers: int, rounds: int) -> tuple[list[Row], list[Overhead]]:
    """Times steps of BERT-base (8 × 128 tokens, AdamW) dense, pruned, and at a choice of masks.

    The reference of the rows is the dense step.
    """
    dense = _Training(PruningConfig(), layers)
    pruned = {name: _Training(cfg, layers) for name, cfg in CONFIGS.items()}
    # Step 1 of an interval of 100 chooses no masks and step 100 does.
    runs = {"dense": partial(dense.step, 1)}
    for name, training in pruned.items():
        runs[_ordinary(name)] = partial(training.step, 1)
        runs[_choosing(name)] = partial(training.step, _INTERVAL)
    seconds = interleave(runs, rounds)
    overheads = [_overhead(name, seconds, training, dense) for name, training in pruned.items()]
    return _rows(seconds, "dense"), overheads


def _ordinary(name: str) -> str:
    return f"{name}, ordinary step"


def _choosing(name: str) -> str:
    return f"{name}, choosing masks"


def _overhead(
    name: str, seconds: dict[str, list[float]], training: "_Training", dense: "_Training"
) -> Overhead:
    rounds = zip(seconds["dense"], seconds[_ordinary(name)], seconds[_choosing(name)], strict=True)
    choosing = sorted((more - plain) / (_INTERVAL * step) for step, plain, more in rounds)
    masks = masks_of(training.state[1])
    weights = sum(mask.size for mask in masks.values())
    packed = jax.eval_shape(pack, masks)
    return Overhead(
        name=name,
        choosing=statistics.median(choosing),
        choosing_range=(choosing[0], choosing[-1]),
        held_bytes=sum(mask.nbytes for mask in masks.values()) / weights,
        peak_bytes=(training.peak_bytes - dense.peak_bytes) / weights,
        checkpoint_bits=8 * sum(bits.size for bits in packed.values()) / weights,
    )


class _Training:
    """A training step that keeps its state, and acts as the step of the given number."""

    def __init__(self, cfg: PruningConfig, layers: int):
        model = build(replace(BERT_BASE, num_layers=layers, pooler=False))
        tx = prune(optax.adamw(1e-4), cfg)
        batch = _batch()

        def train(state: Any, number: jax.Array) -> Any:
            params, opt = state
            if cfg.rule != "none":
                opt = opt._replace(step=number, progress=jnp.float32(0.5))

            def loss(params: Any) -> jax.Array:
                total, count = model.losses(params, batch)["loss"]
                return total / count

            grads = jax.grad(loss)(params)
            updates, opt = tx.update(grads, opt, params, next_progress=jnp.float32(0.5001))
            return optax.apply_updates(params, updates), opt

        def init(key: jax.Array) -> Any:
            params = model.init(key)
            return params, tx.init(params)

        # Parameters and the optimiser's state, in turns.
        self.state = jax.jit(init)(jax.random.key(0))
        self._train = jax.jit(train, donate_argnums=0).lower(self.state, jnp.int32(0)).compile()
        memory: Any = self._train.memory_analysis()
        # The most that a step holds at once.
        self.peak_bytes = memory.argument_size_in_bytes + memory.temp_size_in_bytes

    def step(self, number: int) -> Any:
        self.state = self._train(self.state, jnp.int32(number))
        return self.state


def _batch() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    positions = np.stack([np.sort(generator.permutation(128)[:19]) for _ in range(8)])
    return {
        "tokens": generator.integers(5, BERT_BASE.vocab_size, (8, 128), dtype=np.int32),
        "masked_positions": positions.astype(np.int32),
        "masked_labels": generator.integers(5, BERT_BASE.vocab_size, (8, 19), dtype=np.int32),
        "masked_weights": np.ones((8, 19), np.float32),
    }


def interleave(runs: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Returns the seconds of each run, one of each a round, after one round of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(rounds + 1):
        for name, run in runs.items():
            begun = time.perf_counter()
            jax.block_until_ready(run())
            if index:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def _rows(seconds: dict[str, list[float]], reference: str) -> list[Row]:
    rows = []
    for name, times in seconds.items():
        ratios = [a / b for a, b in zip(times, seconds[reference], strict=True)]
        rows.append(
            Row(
                name=name,
                seconds=statistics.median(times),
                ratio=statistics.median(ratios),
                ratio_range=(min(ratios), max(ratios)),
            )
        )
    return rows
