"""Dense T5: a strong baseline, and what sparse models are compared with."""

import dataclasses

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.registry import experiment
from models.config import T5Config

# T5 v1.1-base, 12 + 12 layers, on C4 with 512 tokens in and 114 out.
_PAPER_MODEL = T5Config(compute_dtype="bfloat16")
_PAPER_DATA = DataConfig(
    objective="span_corruption",
    tfds_name="c4/en",
    vocabulary_size=32000,
    inputs_length=512,
    targets_length=114,
)
_DEMO_MODEL = T5Config(
    vocab_size=4196,
    model_dim=128,
    mlp_dim=256,
    num_heads=4,
    head_dim=32,
    num_encoder_layers=2,
    num_decoder_layers=2,
    z_loss=1e-4,
    scan_layers=False,
)
_DEMO_DATA = DataConfig(objective="span_corruption", inputs_length=128, targets_length=32)
# Deep and narrow, for t5_baseline and its challengers, some of which change the layers.
_SMALL_MODEL = dataclasses.replace(
    _DEMO_MODEL,
    vocab_size=1124,
    model_dim=64,
    mlp_dim=128,
    head_dim=16,
    num_encoder_layers=4,
    num_decoder_layers=4,
)
_SMALL_DATA = DataConfig(
    objective="span_corruption", vocabulary_size=1024, inputs_length=64, targets_length=24
)
_DEMO_OPTIMIZER = OptimizerConfig(peak_learning_rate=4e-3, beta2=0.98, warmup_fraction=0.05)
_DEMO_TRAIN = TrainConfig(batch_size=16)


def _of_study(name: str, scale: str) -> Experiment:
    """The dense run of the sparsity study of Frantar et al. 2024 (arXiv 2309.08520).

    250,000 steps of 128 sequences are the smallest amount of data of that study.
    """
    if scale == "demo":
        return Experiment(
            name=name,
            scale=scale,
            budget="60s",
            model=_DEMO_MODEL,
            data=_DEMO_DATA,
            optimizer=_DEMO_OPTIMIZER,
            train=_DEMO_TRAIN,
        )
    return Experiment(
        name=name,
        scale=scale,
        budget="250000steps",
        model=dataclasses.replace(_PAPER_MODEL, z_loss=1e-4),
        data=_PAPER_DATA,
        # Unfactored for dense runs too, as in the study: nothing but pruning may differ.
        optimizer=OptimizerConfig(
            name="adafactor",
            factored=False,
            peak_learning_rate=1e-2,
            schedule="rsqrt",
            warmup_fraction=0.04,
        ),
        train=TrainConfig(
            batch_size=128,
            log_every_steps=100,
            num_evaluations=25,
            num_checkpoints=50,
            eval_batches=80,
        ),
    )


@experiment
def t5_baseline(scale: str) -> Experiment:
    """T5 v1.1-base as the baseline of No Train No Gain: AdamW scaled by RMS, cosine.

    Settings: Kaddour et al. 2023 (arXiv 2307.06440), section 3 and released code: a warm-up from
    half of the peak over 10,000 of 65,536 nominal steps. Other than there, the relative position
    table is shared by all layers, as in the published T5.

    Command: python -m experiments.launch --exp=t5_baseline
    Hardware: demo any CPU with 2 cores; paper one accelerator with 80 GB.
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: demo validation loss about 3.9 after 24 s; the paper gives none for pre-training.
    """
    if scale == "demo":
        return Experiment(
            name="t5_baseline",
            scale="demo",
            budget="60s",
            model=_SMALL_MODEL,
            data=_SMALL_DATA,
            optimizer=_DEMO_OPTIMIZER,
            train=_DEMO_TRAIN,
            tuning_trials=5,
        )
    return Experiment(
        name="t5_baseline",
        scale="paper",
        budget="24h",
        model=_PAPER_MODEL,
        data=_PAPER_DATA,
        optimizer=OptimizerConfig(
            peak_learning_rate=2e-2,
            scale_by_rms=True,
            schedule="cosine",
            initial_learning_rate_ratio=0.5,
            warmup_fraction=10_000 / 65_536,
            final_learning_rate_ratio=1e-5 / 2e-2,
            beta2=0.999,
            epsilon=1e-6,
        ),
        train=TrainConfig(
            batch_size=144,
            microbatches=2,
            log_every_steps=50,
            num_evaluations=24,
            num_checkpoints=48,
            eval_batches=500,
        ),
    )


@experiment
def dense_t5(scale: str) -> Experiment:
    """T5 v1.1 on span corruption, dense: what every sparse run is compared with.

    Command: python -m experiments.launch --exp=dense_t5
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 2 minutes; paper 250,000 steps.
    Score: demo validation loss about 4.7; that of the paper's runs is in its law, not in a table.
    """
    return _of_study("dense_t5", scale)
