"""Training steps of small models on meshes of eight simulated devices, and what they send."""

import re
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.data.objectives import batch_spec
from experiments.program import Program, compile_program
from experiments.step import State, Sums
from models.config import BertConfig, MeshConfig, T5Config, ViTConfig
from sparsity.config import PruningConfig

# Sizes that eight divides, and that no two axes share.
_BLOCKS = {"model_dim": 32, "mlp_dim": 96, "num_heads": 8}
_T5 = Experiment(
    name="t5",
    scale="demo",
    budget="2steps",
    model=T5Config(
        vocab_size=88,
        head_dim=5,
        num_encoder_layers=2,
        num_decoder_layers=2,
        relative_buckets=24,
        **_BLOCKS,
    ),
    data=DataConfig(inputs_length=13, targets_length=11),
    # Where a gradient is 0 but for rounding, AdamW with its usual epsilon takes a full step in a
    # direction that rounding decides; with this one, steps follow gradients.
    optimizer=OptimizerConfig(
        schedule="constant",
        warmup_fraction=0.0,
        peak_learning_rate=1e-2,
        epsilon=1e-3,
        weight_decay=0.1,
    ),
    train=TrainConfig(batch_size=16),
)
# Attention is left dense, which halves the time to compile.
_PRUNING = PruningConfig(
    rule="magnitude",
    sparsity=0.5,
    start_fraction=0.0,
    end_fraction=1.0,
    update_every_steps=1,
    exclude=(*PruningConfig().exclude, "attention"),
)
EXPERIMENTS = {
    "t5": _T5,
    "t5 pruned": replace(_T5, pruning=_PRUNING),
    "t5 2:4": replace(_T5, pruning=replace(_PRUNING, pattern="2:4")),
    "t5 unrolled": replace(
        _T5,
        model=replace(_T5.model, scan_layers=False, remat="dots", dropout=0.2, tied_logits=True),
    ),
    "t5 in two parts": replace(_T5, train=TrainConfig(batch_size=16, microbatches=2)),
    "bert": replace(
        _T5,
        model=BertConfig(vocab_size=88, max_length=13, num_layers=2, pooler=False, **_BLOCKS),
        data=DataConfig(objective="mlm", inputs_length=13, mask_rate=0.3),
    ),
    "vit": replace(
        _T5,
        model=ViTConfig(
            image_size=8, patch_size=2, channels=1, num_classes=24, num_layers=2, **_BLOCKS
        ),
        data=DataConfig(objective="image_classification"),
    ),
}
SINGLE = MeshConfig(data=1)


@lru_cache(maxsize=2)
def program(name: str, mesh: MeshConfig) -> Program:
    """The compiled training step of an experiment on a mesh."""
    return compile_program(replace(EXPERIMENTS[name], mesh=mesh))


def batch(name: str) -> dict[str, np.ndarray]:
    """Sixteen random examples, of the shapes that prepared data has, three of them padded."""
    rng = np.random.default_rng(0)
    high = {"masked_positions": 8, "labels": 24}
    made = {}
    for array, (shape, dtype) in batch_spec(EXPERIMENTS[name].data, 16).items():
        if dtype == np.float32:
            made[array] = rng.random(shape, dtype)
        else:
            made[array] = rng.integers(1, high.get(array, 88), shape, dtype)
    for array in made.keys() & {"inputs", "targets", "tokens"}:
        made[array][3:6, 8:] = 0
    return made


def two_steps(name: str, mesh: MeshConfig) -> tuple[State, Sums]:
    """The state after two steps from the start, and the sums of the second."""
    compiled, examples = program(name, mesh), batch(name)
    state = compiled.init_state(0)
    for progress in (0.0, 0.5):
        # Programs that wait for each other's simulated devices can use up all threads of a CPU.
        jax.block_until_ready(state)
        state, sums = compiled.train_step(
            state, examples, np.float32(progress), np.float32(progress + 0.5)
        )
    return state, sums


class Matrix(NamedTuple):
    """Shapes of one layer's matrix."""

    whole: tuple[int, ...]
    # what a device works with: its part of "tensor"
    used: tuple[int, ...]
    # what a device keeps: its part of "tensor" and of "fsdp"
    kept: tuple[int, ...]


def matrices(name: str, mesh: MeshConfig) -> dict[str, Matrix]:
    """Path → shapes of each matrix among the parameters."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(program(name, mesh).state_shapes["params"]):
        parameter = jax.tree_util.keystr(path, simple=True, separator="/")
        stacked = "layers" in parameter.split("/")
        if leaf.ndim - stacked >= 2:
            kept = leaf.sharding.shard_shape(leaf.shape)
            axes = (*leaf.sharding.spec, None, None)
            used = (
                size if axis == "fsdp" else part
                for size, part, axis in zip(leaf.shape, kept, axes, strict=False)
            )
            found[parameter] = Matrix(leaf.shape[stacked:], tuple(used)[stacked:], kept[stacked:])
    return found


def collectives(compiled: jax.stages.Compiled) -> dict[str, set[tuple[int, ...]]]:
    """Kind of collective → shapes of the floats that come out of it, axes of size 1 left out."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    found: dict[str, set[tuple[int, ...]]] = {kind: set() for kind in kinds}
    pattern = rf"= (.*?) ({'|'.join(kinds)})(?:-start)?\("
    for shapes, kind in re.findall(pattern, compiled.as_text()):
        for dims in re.findall(r"f32\[([\d,]*)\]", shapes):
            sizes = (int(size) for size in dims.split(",") if size)
            found[kind].add(tuple(size for size in sizes if size > 1))
    return found
