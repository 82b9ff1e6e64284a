"""ViT with fast feedforward layers in their soft form, and the dense layers beside them.

The vision transformers of "Fast Feedforward Networks" (Belcak and Wattenhofer 2023, arXiv
2308.14711): 4 layers of width 128 on CIFAR-10, with 128 feedforward neurons in all, in leaves of 1
to 32. Other than there, the learning rate follows a cosine, not plateaus of the validation score,
and dropout is in every layer.
"""

import dataclasses

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.registry import experiment
from experiments.vit import vit_baseline
from fff.config import soft_leaves
from models.config import ViTConfig

LEAVES = (32, 16, 8, 4, 2, 1)
_TRAINING_WIDTH = 128
# The paper has 5, 10 and a tree frozen from the start.
_HARDENING = 5.0


def _dense(name: str, scale: str) -> Experiment:
    if scale == "demo":
        base = vit_baseline("demo")
        model = dataclasses.replace(base.model, mlp_dim=_TRAINING_WIDTH)
        return dataclasses.replace(base, name=name, model=model)
    return Experiment(
        name=name,
        scale="paper",
        budget="50000steps",
        model=ViTConfig(
            image_size=32,
            patch_size=4,
            num_classes=10,
            model_dim=128,
            mlp_dim=_TRAINING_WIDTH,
            num_heads=4,
            num_layers=4,
            dropout=0.1,
        ),
        data=DataConfig(
            objective="image_classification",
            tfds_name="cifar10:3.0.2",
            image_size=32,
            image_channels=3,
        ),
        optimizer=OptimizerConfig(peak_learning_rate=4e-4, beta2=0.999, warmup_fraction=0.02),
        train=TrainConfig(batch_size=256, log_every_steps=100, num_evaluations=50),
    )


@experiment
def vit_dense_128(scale: str) -> Experiment:
    """ViT with dense feedforward layers of 128 neurons, the baseline of fff_vit_leaf_*.

    Command: python -m experiments.launch --exp=vit_dense_128
    Data: paper needs TFDS's cifar10, prepared once as array_record; the run says how.
    Hardware: any CPU with 2 cores; paper rather an accelerator.
    Time: demo a minute; paper an hour on an accelerator.
    Score: the paper has an accuracy of 0.847 on CIFAR-10.
    """
    return _dense("vit_dense_128", scale)


def _register(leaf_width: int) -> None:
    name = f"fff_vit_leaf_{leaf_width}"
    layer = dataclasses.replace(
        soft_leaves(_TRAINING_WIDTH, leaf_width), hardening=_HARDENING, hardening_over="mean"
    )

    def make(scale: str) -> Experiment:
        return dataclasses.replace(_dense(name, scale), fff=layer)

    make.__name__ = name
    make.__doc__ = f"""ViT with soft trees of depth {layer.depth}, leaves of {leaf_width} neurons.

    The entropy of the gates is averaged over them, as in the paper's code.

    Command: python -m experiments.launch --exp={name}
    Data: paper needs TFDS's cifar10, prepared once as array_record; the run says how.
    Hardware: any CPU with 2 cores; paper rather an accelerator.
    Time: demo a minute; paper an hour on an accelerator.
    Score: the paper has an accuracy of {_ACCURACY[leaf_width]} on CIFAR-10.
    """
    experiment(make)


# Of the rounded tree, by leaf width (2308.14711, the table of vision transformers).
_ACCURACY = {32: 0.836, 16: 0.832, 8: 0.828, 4: 0.816, 2: 0.801, 1: 0.798}

for _leaf_width in LEAVES:
    _register(_leaf_width)
