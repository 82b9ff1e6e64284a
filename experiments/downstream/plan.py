"""A fine-tuning run as an experiment: a task, a protocol, and the network that it starts from."""

import dataclasses
import math
from collections.abc import Sequence

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.data.prepare import Progress, prepare
from experiments.data.windows import Prepared
from experiments.downstream.protocols import Protocol
from experiments.downstream.registry import DIGITS, find_task
from experiments.downstream.source import Source
from experiments.overrides import apply_overrides
from models.config import BertConfig, HeadConfig, T5Config, ViTConfig
from models.errors import UserError

_FAMILIES = {BertConfig: "BERT", T5Config: "T5", ViTConfig: "ViT"}


def draft(source: Source, task_name: str, protocol: Protocol, *, scratch: bool) -> Experiment:
    """Returns the experiment of one task, but for its budget, which its data decides.

    Raises UserError for a task that this kind of model cannot do.
    """
    protocol = protocol.for_task(task_name)
    family = _FAMILIES[type(source.model)]
    if (task_name == DIGITS) != (family == "ViT"):
        able = "BERT and T5 can" if family == "ViT" else "a ViT can"
        raise UserError(
            f"--task {task_name}: {source.name} is a {family}, which cannot do it; {able}."
        )
    model = dataclasses.replace(source.model, dropout=protocol.dropout)
    head = None
    if task_name == DIGITS:
        assert source.data is not None or isinstance(model, ViTConfig)
        data = source.data or DataConfig(objective="image_classification")
        assert isinstance(model, ViTConfig)
        head = HeadConfig(num_outputs=model.num_classes, pooling="first")
    else:
        task = find_task(task_name)
        if task.kind == "text" and family != "T5":
            raise UserError(
                f"--task {task_name}: is answered in free text, which takes a T5; {source.name} "
                f"is a {family}."
            )
        is_t5 = isinstance(model, T5Config)
        lengths = protocol.text_lengths
        if task.text_lengths and source.scale == "paper":
            lengths = task.text_lengths
        data = DataConfig(
            objective="text_to_text" if is_t5 else "classification",
            task=task_name,
            vocabulary_file=source.vocabulary_file,
            inputs_length=lengths[0] if is_t5 else protocol.length,
            targets_length=lengths[1],
        )
        if not is_t5:
            head = HeadConfig(
                num_outputs=max(len(task.labels), 1),
                hidden_dim=protocol.hidden_dim,
                pooling=protocol.pooling,
            )
    return Experiment(
        name=f"finetune_{source.name}/{task_name}".replace("/", "_"),
        scale=source.scale,
        budget="1steps",
        model=model,
        head=head,
        init=None if scratch else source.init,
        data=data,
        optimizer=OptimizerConfig(
            name="adamw",
            peak_learning_rate=protocol.peak_learning_rate,
            schedule=protocol.schedule,
            warmup_fraction=protocol.warmup_fraction,
            beta2=protocol.beta2,
            epsilon=protocol.epsilon,
            weight_decay=0.0,
            clip_norm=0.0,
        ),
        pruning=None if scratch else source.pruning,
        train=TrainConfig(
            batch_size=protocol.batch_size,
            num_evaluations=protocol.epochs,
            num_checkpoints=1,
            keep_checkpoints=1,
        ),
        **source.groups,
    )


def complete(
    experiment: Experiment, assignments: Sequence[str], progress: Progress | None = None
) -> tuple[Experiment, Prepared]:
    """Applies `path=value` settings, prepares the data, and turns epochs into a budget of steps.

    Raises UserError for settings or data that do not fit.
    """
    experiment = apply_overrides(experiment, assignments)
    experiment.check()
    prepared = prepare(experiment.data, progress=progress)
    train = experiment.train
    counts = prepared.facts["counts"]
    examples = next(iter(counts["train"].values()))
    steps = math.ceil(train.num_evaluations * examples / train.batch_size)
    held_out = next(iter(counts["validation"].values()))
    train = dataclasses.replace(train, eval_batches=math.ceil(held_out / train.batch_size))
    return dataclasses.replace(experiment, budget=f"{steps}steps", train=train), prepared
