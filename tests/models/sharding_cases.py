"""Training steps of small models on meshes of eight simulated devices, and what they send."""

import re
from dataclasses import replace
from functools import cache

import jax
import numpy as np

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.data.objectives import batch_spec
from experiments.program import Program, compile_program
from models.config import BertConfig, MeshConfig, T5Config, ViTConfig
from sparsity.config import PruningConfig

# Sizes that eight divides, and that no two axes share.
MODELS = {
    "t5": (
        T5Config(
            vocab_size=88,
            model_dim=32,
            mlp_dim=72,
            num_heads=8,
            head_dim=5,
            num_encoder_layers=2,
            num_decoder_layers=2,
            relative_buckets=24,
        ),
        DataConfig(inputs_length=13, targets_length=11),
    ),
    "bert": (
        BertConfig(
            vocab_size=88, max_length=14, model_dim=32, mlp_dim=72, num_heads=8, num_layers=2
        ),
        DataConfig(objective="mlm", inputs_length=13, mask_rate=0.3),
    ),
    "vit": (
        ViTConfig(
            image_size=8,
            patch_size=4,
            channels=1,
            num_classes=24,
            model_dim=32,
            mlp_dim=72,
            num_heads=8,
            num_layers=2,
        ),
        DataConfig(objective="image_classification"),
    ),
}
SINGLE = MeshConfig(data=1)
PRUNING = PruningConfig(
    rule="magnitude", sparsity=0.5, start_fraction=0.0, end_fraction=1.0, update_every_steps=1
)


@cache
def program(model: str, mesh: MeshConfig, pruned: bool = False) -> Program:
    """The compiled step of one of the models: AdamW, clipped, with weight decay."""
    cfg, data = MODELS[model]
    return compile_program(
        Experiment(
            name=model,
            scale="demo",
            budget="2steps",
            model=cfg,
            data=data,
            # Where a gradient is 0 but for rounding, AdamW with its usual epsilon takes a full step
            # in a direction that rounding decides; with this one, steps follow gradients.
            optimizer=OptimizerConfig(
                schedule="constant",
                warmup_fraction=0.0,
                peak_learning_rate=1e-2,
                epsilon=1e-3,
                weight_decay=0.1,
            ),
            pruning=PRUNING if pruned else None,
            train=TrainConfig(batch_size=16),
            mesh=mesh,
        )
    )


def batch(model: str) -> dict[str, np.ndarray]:
    """Random examples, some of them padded, as prepared data would give them."""
    cfg, data = MODELS[model]
    rng = np.random.default_rng(0)
    high = {"masked_positions": 8, "labels": 24}
    made = {}
    for name, (shape, dtype) in batch_spec(data, 16).items():
        if dtype == np.float32:
            made[name] = rng.random(shape, dtype)
        else:
            made[name] = rng.integers(1, high.get(name, 88), shape, dtype)
    for name in ("inputs", "targets", "tokens"):
        if name in made:
            made[name][3:6, 8:] = 0
    return made


def two_steps(model: str, mesh: MeshConfig, pruned: bool = False):
    """The state after two steps from the same start, and the sums of the second."""
    compiled, examples = program(model, mesh, pruned), batch(model)
    state = compiled.init_state(0)
    state, _ = compiled.train_step(state, examples, np.float32(0), np.float32(0.5))
    return compiled.train_step(state, examples, np.float32(0.5), np.float32(1))


def matrices(model: str, mesh: MeshConfig) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Path → shapes, of one layer, of each matrix and of the part of it that a device has."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(program(model, mesh).state_shapes["params"]):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        stacked = "layers" in name.split("/")
        if leaf.ndim - stacked >= 2:
            part = leaf.sharding.shard_shape(leaf.shape)
            found[name] = (leaf.shape[stacked:], part[stacked:])
    return found


def collectives(compiled) -> dict[str, set[tuple[int, ...]]]:
    """Kind of collective → shapes of the floats that come out of it, axes of size 1 left out."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    found = {kind: set() for kind in kinds}
    pattern = rf"= (.*?) ({'|'.join(kinds)})(?:-start)?\("
    for shapes, kind in re.findall(pattern, compiled.as_text()):
        for dims in re.findall(r"f32\[([\d,]*)\]", shapes):
            sizes = (int(size) for size in dims.split(",") if size)
            found[kind].add(tuple(size for size in sizes if size > 1))
    return found


