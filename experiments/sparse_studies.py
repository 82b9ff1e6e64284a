"""Studies of sparsity: grids for its scaling law, and pruning a dense run against from scratch."""

import dataclasses
from collections.abc import Mapping, Sequence

from experiments.config import Experiment, ModelConfig, TrainConfig
from experiments.init import InitConfig
from experiments.registry import study
from experiments.sparse import dense, pruning_of_study
from experiments.study import Study
from models.config import T5Config, ViTConfig
from models.presets import VIT_B16, VIT_DEMO, t5_of_scale, vit_of_scale
from sparsity.config import PruningConfig

_DENSE = "0 %"
_TO_75 = (_DENSE, "50 %", "75 %")
_TO_875 = (*_TO_75, "87.5 %")
_DEMO_SIZES = {1 / 16: _TO_875, 1 / 4: _TO_875, 1: _TO_75}
# Matched in non-zeros to "50 %" and to "75 %".
_NM_PATTERNS = ("2:4", "4:8", "1:4", "2:8")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Grid:
    """Points of a scaling law: every size with every amount of data, at some sparsities."""

    family: str
    scale: str
    # The dense network of scale 1.
    model: ModelConfig
    # Non-zero weights as shares of that network's → the sparsities at this size.
    sizes: Mapping[float, Sequence[str]]
    # Amounts of data, in steps.
    steps: Sequence[int]
    # Sizes and amounts of data at which N:M patterns are run.
    nm_sizes: Sequence[float] = ()
    nm_steps: Sequence[int] = ()
    train: TrainConfig
    # Steps between two choices of masks.
    update_every_steps: int

    def runs(self, name: str) -> tuple[Experiment, ...]:
        """Every point: the least data first, N:M patterns last."""
        points = [
            (size, sparsity, steps)
            for steps in self.steps
            for size, sparsities in self.sizes.items()
            for sparsity in sparsities
        ]
        points += [
            (size, pattern, steps)
            for steps in self.nm_steps
            for size in self.nm_sizes
            for pattern in _NM_PATTERNS
        ]
        return tuple(self._run(name, *point) for point in points)

    def _run(self, name: str, size: float, pattern: str, steps: int) -> Experiment:
        base = dense(self.family, self.scale)
        pruning = None
        if pattern != _DENSE:
            pruning = dataclasses.replace(
                pruning_of_study(self.scale, pattern), update_every_steps=self.update_every_steps
            )
        return dataclasses.replace(
            base,
            name=f"{name}/size-{size:g}-{_label(pattern)}",
            budget=f"{steps}steps",
            model=_of_scale(self.model, size / _density(pruning)),
            pruning=pruning,
            train=self.train,
        )


def _density(pruning: PruningConfig | None) -> float:
    return 1.0 if pruning is None else 1 - pruning.sparsity


def _of_scale(model: ModelConfig, scale: float) -> ModelConfig:
    if isinstance(model, T5Config):
        return t5_of_scale(scale, model)
    assert isinstance(model, ViTConfig)
    return vit_of_scale(scale, model)


def _label(pattern: str) -> str:
    """`dense`, `75` or `2to4`: the pattern within a folder's name."""
    if pattern == _DENSE:
        return "dense"
    return pattern.removesuffix(" %").replace(":", "to")


def _often(train: TrainConfig) -> TrainConfig:
    """What happens between the steps of a short run: one evaluation and checkpoint, at its end."""
    return dataclasses.replace(
        train,
        log_every_steps=20,
        num_evaluations=1,
        num_checkpoints=1,
        profile_steps=10,
    )


@study
def study_sparse_t5(scale: str) -> Study:
    """T5 at several sizes, sparsities and amounts of data: the points of a scaling law.

    Non-zero weights are matched: at sparsity S a run starts from a network with 1 / (1 − S) times
    the weights. Paper scale is the grid of Frantar et al. 2024 (arXiv 2309.08520), from 1.3 M to
    85 M non-zeros in its count and from 250,000 to 1,000,000 steps, with N:M patterns at one size.

    Command: python -m experiments.launch --exp=study_sparse_t5
    Then: python -m sparsity.scaling_law fit --runs=runs/study_sparse_t5
    Hardware: demo any CPU; paper one accelerator with 40 GB or more for each point (--points).
    Time: demo 15 minutes of one core; paper 56 runs of 250,000 to 1,000,000 steps.
    Score: demo a law that says itself how little so small a grid pins down.
    """
    base = dense("t5", scale)
    assert isinstance(base.model, T5Config)
    if scale == "demo":
        tiny = dataclasses.replace(
            base.model,
            model_dim=64,
            mlp_dim=128,
            num_heads=4,
            head_dim=16,
            num_encoder_layers=1,
            num_decoder_layers=1,
        )
        grid = _Grid(
            family="t5",
            scale=scale,
            model=tiny,
            sizes=_DEMO_SIZES,
            steps=(100, 200, 400),
            nm_sizes=(1 / 4,),
            nm_steps=(200, 400),
            train=_often(base.train),
            update_every_steps=5,
        )
    else:
        grid = _Grid(
            family="t5",
            scale=scale,
            model=base.model,
            sizes=dict.fromkeys((2**-7, 2**-5, 2**-3, 2**-1), _TO_875),
            steps=(250_000, 500_000, 1_000_000),
            nm_sizes=(2**-5,),
            nm_steps=(250_000, 500_000),
            train=base.train,
            update_every_steps=100,
        )
    return Study(name="study_sparse_t5", runs=grid.runs("study_sparse_t5"))


@study
def study_sparse_vit(scale: str) -> Study:
    """ViT at several sizes, sparsities and amounts of data: the points of a scaling law.

    Non-zero weights are matched, as in study_sparse_t5. Paper scale is the grid of Frantar et al.
    2024 (arXiv 2309.08520) in sizes and sparsities, on ImageNet and a third of its data, since its
    images are not public. Demo scale repeats 1,500 digits, so its law is that of repeated data.

    Command: python -m experiments.launch --exp=study_sparse_vit
    Then: python -m sparsity.scaling_law fit --runs=runs/study_sparse_vit
    Hardware: demo any CPU; paper one accelerator with 40 GB or more for each point (--points).
    Time: demo 15 minutes of one core; paper 112 runs of 55,000 to 440,000 steps.
    Score: demo a law that says itself how little so small a grid pins down.
    """
    base = dense("vit", scale)
    if scale == "demo":
        grid = _Grid(
            family="vit",
            scale=scale,
            model=dataclasses.replace(VIT_DEMO, num_layers=2, scan_layers=False),
            sizes=_DEMO_SIZES,
            steps=(50, 100, 200),
            train=_often(base.train),
            update_every_steps=5,
        )
    else:
        grid = _Grid(
            family="vit",
            scale=scale,
            model=dataclasses.replace(VIT_B16, compute_dtype="bfloat16"),
            sizes={
                **dict.fromkeys((2**-7, 2**-6), (*_TO_875, "93.75 %")),
                **dict.fromkeys((2**-5, 2**-4, 2**-3), _TO_875),
                **dict.fromkeys((2**-2, 2**-1), _TO_75),
            },
            steps=(55_000, 110_000, 220_000, 440_000),
            train=base.train,
            update_every_steps=100,
        )
    return Study(name="study_sparse_vit", runs=grid.runs("study_sparse_vit"))


def _against_scratch(name: str, family: str, scale: str, start: int, more: int) -> Study:
    """A dense run of `start` steps, pruned in `more` steps, and from scratch at either cost.

    With as many steps as pruning alone the dense run is not counted, with both together it is.
    """
    base = dense(family, scale)
    runs = [dataclasses.replace(base, name=f"{name}/dense", budget=f"{start}steps")]
    for percent in (50, 75):
        pruning = pruning_of_study(scale, f"{percent} %")
        for label, steps, init in (
            ("pruned", more, InitConfig(run=f"{name}/dense")),
            ("scratch", more, None),
            ("scratch", start + more, None),
        ):
            runs.append(
                dataclasses.replace(
                    base,
                    name=f"{name}/{label}-{percent}",
                    budget=f"{steps}steps",
                    init=init,
                    pruning=pruning,
                )
            )
    return Study(name=name, runs=tuple(runs))


@study
def study_sparsify_t5(scale: str) -> Study:
    """T5 pruned from a dense run or from scratch at equal cost, the dense run counted and not.

    Command: python -m experiments.launch --exp=study_sparsify_t5
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 5 minutes; paper 1,500,000 steps in all.
    Score: demo the table at its end compares the losses at either cost.
    """
    start, more = (300, 150) if scale == "demo" else (250_000, 125_000)
    return _against_scratch("study_sparsify_t5", "t5", scale, start, more)


@study
def study_sparsify_vit(scale: str) -> Study:
    """ViT pruned from a dense run or from scratch at equal cost, the dense run counted and not.

    Command: python -m experiments.launch --exp=study_sparsify_vit
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 5 minutes; paper 675,540 steps in all.
    Score: demo the table at its end compares the losses at either cost.
    """
    start, more = (300, 150) if scale == "demo" else (112_590, 56_295)
    return _against_scratch("study_sparsify_vit", "vit", scale, start, more)
