"""T5 experiments: dense, and pruned while training."""

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.registry import experiment
from models.config import T5Config
from sparsity.config import PruningConfig


def _t5(name: str, scale: str, pruning: PruningConfig | None) -> Experiment:
    if scale == "paper":
        # T5 v1.1-base as in Frantar et al. 2024 (arXiv 2309.08520); 250,000 steps of 128 sequences
        # are the smallest amount of data of that study.
        return Experiment(
            name=name,
            scale=scale,
            budget="250000steps",
            model=T5Config(
                vocab_size=32128,
                model_dim=768,
                mlp_dim=2048,
                num_heads=12,
                head_dim=64,
                num_encoder_layers=12,
                num_decoder_layers=12,
                z_loss=1e-4,
                compute_dtype="bfloat16",
            ),
            data=DataConfig(
                objective="span_corruption",
                tfds_name="c4/en",
                vocabulary_size=32000,
                inputs_length=512,
                targets_length=114,
            ),
            optimizer=OptimizerConfig(
                name="adafactor",
                # As in the study, for dense runs too: nothing but pruning may differ.
                factored=False,
                peak_learning_rate=1e-2,
                schedule="rsqrt",
                warmup_fraction=0.04,
            ),
            pruning=pruning,
            train=TrainConfig(
                batch_size=128,
                log_every_steps=100,
                num_evaluations=25,
                num_checkpoints=50,
                eval_batches=80,
            ),
        )
    return Experiment(
        name=name,
        scale=scale,
        budget="60s",
        model=T5Config(
            vocab_size=4196,
            model_dim=128,
            mlp_dim=256,
            num_heads=4,
            head_dim=32,
            num_encoder_layers=2,
            num_decoder_layers=2,
            z_loss=1e-4,
        ),
        data=DataConfig(objective="span_corruption", inputs_length=128, targets_length=32),
        optimizer=OptimizerConfig(
            name="adamw", peak_learning_rate=4e-3, beta2=0.98, warmup_fraction=0.05
        ),
        pruning=pruning,
        train=TrainConfig(batch_size=32),
    )


def _sparse(name: str, scale: str, sparsity: float) -> Experiment:
    """Gradual magnitude pruning, cubic from 25 % to 75 % of the budget, uniform per tensor."""
    every = 100 if scale == "paper" else 20
    return _t5(
        name, scale, PruningConfig(rule="magnitude", sparsity=sparsity, update_every_steps=every)
    )


@experiment
def dense_t5(scale: str) -> Experiment:
    """T5 v1.1 on span corruption, dense: what every sparse run is compared with.

    Command: python -m experiments.launch --exp=dense_t5
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    """
    return _t5("dense_t5", scale, None)


@experiment
def sparse_t5_50(scale: str) -> Experiment:
    """T5 v1.1 on span corruption, half of its weights pruned by magnitude.

    Command: python -m experiments.launch --exp=sparse_t5_50
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    """
    return _sparse("sparse_t5_50", scale, 0.5)


@experiment
def sparse_t5_75(scale: str) -> Experiment:
    """T5 v1.1 on span corruption, 75 % of its weights pruned by magnitude.

    Command: python -m experiments.launch --exp=sparse_t5_75
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    """
    return _sparse("sparse_t5_75", scale, 0.75)


@experiment
def sparse_t5_875(scale: str) -> Experiment:
    """T5 v1.1 on span corruption, 87.5 % of its weights pruned by magnitude.

    Command: python -m experiments.launch --exp=sparse_t5_875
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    """
    return _sparse("sparse_t5_875", scale, 0.875)
