"""BERT experiments: masked language modelling in the crammed form."""

import dataclasses

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.registry import experiment
from models.config import BertConfig
from models.presets import CRAMMED_BERT, CRAMMED_BERT_DEMO, CRAMMED_BERT_UNGATED

# The embedded corpus's 4,096 pieces and the 100 ids above them, the last of which is the mask.
_DEMO_VOCABULARY = 4196


def _paper_data(mask_rate: float) -> DataConfig:
    # With the 100 ids on top the vocabulary is the published 32,768.
    return DataConfig(
        objective="mlm",
        tfds_name="c4/en",
        vocabulary_size=32668,
        inputs_length=128,
        mask_rate=mask_rate,
    )


def _demo(name: str, model: BertConfig, mask_rate: float, optimizer: OptimizerConfig) -> Experiment:
    return Experiment(
        name=name,
        scale="demo",
        budget="60s",
        model=dataclasses.replace(model, vocab_size=_DEMO_VOCABULARY, scan_layers=False),
        data=DataConfig(objective="mlm", inputs_length=128, mask_rate=mask_rate),
        optimizer=optimizer,
        train=TrainConfig(batch_size=16),
    )


# A demo that learns within seconds: short sequences, a small vocabulary, and no linear head, which
# from its start at N(0, 0.02) would hold a model of this width back for most of its budget.
_SMALL_MODEL = dataclasses.replace(
    CRAMMED_BERT_DEMO, vocab_size=1124, model_dim=64, mlp_dim=128, mlm_head="none"
)
_SMALL_DATA = DataConfig(objective="mlm", vocabulary_size=1024, inputs_length=32, mask_rate=0.15)


@experiment
def bert_baseline(scale: str) -> Experiment:
    """BERT as the baseline of No Train No Gain: 16 pre-norm layers, gated, AdamW, a triangle.

    Settings: Kaddour et al. 2023 (arXiv 2307.06440), section 3 and released code. Other than
    there, gains of LayerNorm are not decayed. The demo warms up for a tenth of its budget.

    Command: python -m experiments.launch --exp=bert_baseline
    Hardware: demo any CPU with 2 cores; paper one accelerator with 24 GB or more.
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: demo validation loss about 4.9 after 24 s, where token frequencies alone give 5.6; the
    paper gives none for pre-training.
    """
    optimizer = OptimizerConfig(
        peak_learning_rate=1e-3,
        schedule="linear",
        warmup_fraction=0.5,
        beta2=0.98,
        epsilon=1e-12,
        weight_decay=1e-2,
        clip_norm=0.5,
    )
    if scale == "demo":
        return Experiment(
            name="bert_baseline",
            scale="demo",
            budget="60s",
            model=dataclasses.replace(_SMALL_MODEL, scan_layers=False),
            data=_SMALL_DATA,
            optimizer=dataclasses.replace(optimizer, peak_learning_rate=5e-3, warmup_fraction=0.1),
            train=TrainConfig(batch_size=32),
            tuning_trials=5,
        )
    return Experiment(
        name="bert_baseline",
        scale="paper",
        budget="24h",
        model=dataclasses.replace(CRAMMED_BERT, compute_dtype="bfloat16"),
        data=_paper_data(mask_rate=0.15),
        optimizer=optimizer,
        train=TrainConfig(
            batch_size=1536,
            microbatches=12,
            log_every_steps=50,
            num_evaluations=24,
            num_checkpoints=48,
            eval_batches=6,
        ),
    )


@experiment
def crammed_bert(scale: str) -> Experiment:
    """Crammed BERT with a plain feedforward block of 3,072, the baseline of UltraFastBERT.

    Settings: Geiping and Goldstein 2022 (arXiv 2212.14034) and Belcak and Wattenhofer 2023
    (arXiv 2311.10770), released code, without its ramp of the batch size.

    Command: python -m experiments.launch --exp=crammed_bert
    Hardware: demo any CPU with 2 cores; paper one accelerator with 24 GB or more.
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: demo validation loss about 5.8; the papers give none for pre-training.
    """
    optimizer = OptimizerConfig(
        peak_learning_rate=1e-3,
        schedule="linear",
        initial_learning_rate_ratio=0.25,
        warmup_fraction=0.75,
        beta2=0.98,
        epsilon=1e-12,
        weight_decay=1e-2,
        clip_norm=0.5,
    )
    if scale == "demo":
        optimizer = dataclasses.replace(optimizer, peak_learning_rate=4e-3)
        ungated = dataclasses.replace(
            CRAMMED_BERT_DEMO, gated=False, mlp_dim=2 * CRAMMED_BERT_DEMO.mlp_dim, mlm_head="none"
        )
        return _demo("crammed_bert", ungated, 0.25, optimizer)
    return Experiment(
        name="crammed_bert",
        scale="paper",
        budget="24h",
        model=dataclasses.replace(CRAMMED_BERT_UNGATED, compute_dtype="bfloat16"),
        data=_paper_data(mask_rate=0.25),
        optimizer=optimizer,
        train=TrainConfig(
            batch_size=8192,
            microbatches=64,
            log_every_steps=10,
            num_evaluations=24,
            num_checkpoints=48,
            eval_batches=1,
        ),
    )
