"""ViT experiments: image classification."""

import dataclasses

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.registry import experiment
from models.presets import VIT_DEMO, VIT_S16


@experiment
def vit_baseline(scale: str) -> Experiment:
    """ViT-S/16 on ImageNet (demo: a small one on scikit-learn's digits), AdamW and cosine.

    Command: python -m experiments.launch --exp=vit_baseline
    Data: paper needs TFDS's imagenet2012, prepared once as array_record; the run says how.
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 2 minutes; paper 90 epochs.
    Score: demo validation accuracy about 0.92.
    """
    if scale == "demo":
        return Experiment(
            name="vit_baseline",
            scale="demo",
            budget="40s",
            model=dataclasses.replace(VIT_DEMO, scan_layers=False),
            data=DataConfig(objective="image_classification"),
            optimizer=OptimizerConfig(
                peak_learning_rate=1e-3, beta2=0.999, weight_decay=0.05, warmup_fraction=0.1
            ),
            train=TrainConfig(batch_size=64),
        )
    return Experiment(
        name="vit_baseline",
        scale="paper",
        budget="112590steps",
        model=dataclasses.replace(VIT_S16, compute_dtype="bfloat16"),
        data=DataConfig(
            objective="image_classification",
            tfds_name="imagenet2012:5.1.0",
            image_size=224,
            image_channels=3,
        ),
        optimizer=OptimizerConfig(
            peak_learning_rate=1e-3, beta2=0.999, weight_decay=0.1, warmup_fraction=0.09
        ),
        train=TrainConfig(
            batch_size=1024,
            log_every_steps=50,
            num_evaluations=90,
            num_checkpoints=90,
            eval_batches=49,
        ),
    )
