"""What an experiment is trained on, as configuration."""

import dataclasses
from typing import Literal

from models.errors import UserError, did_you_mean

OBJECTIVES = (
    "span_corruption",
    "mlm",
    "image_classification",
    "classification",
    "text_to_text",
)
# Those of downstream tasks: for an encoder with a head, and for T5.
TASK_OBJECTIVES = ("classification", "text_to_text")
TRAIN_PARTS = ("target", "held_out")
# T5's `<extra_id_0>` … `<extra_id_99>`, on top of every vocabulary (Raffel et al. 2020, 3.1.4).
NUM_SENTINELS = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """One corpus, its vocabulary and the way in which examples are cut out of it."""

    # What is asked of the model: span_corruption (T5), mlm (BERT) or image_classification (ViT);
    # of a downstream task classification (BERT with a head) or text_to_text (T5).
    objective: str = "span_corruption"
    # Downstream task such as glue/cola; None for pre-training and images.
    task: str | None = None
    # Folder with the official files of the task; None: from TFDS, or what every machine has.
    dir: str | None = None
    # Glob of the user's .txt, .jsonl, .jsonl.gz or .parquet files; empty: not from files.
    files: str = ""
    # TFDS set that is prepared already, such as c4/en or c4/en:3.1.0; empty: not from TFDS.
    tfds_name: str = ""
    # Folder of prepared TFDS sets; empty: TFDS's own default.
    tfds_data_dir: str = ""
    # TFDS split, or slice of one, that is trained on.
    tfds_train_split: str = "train"
    # TFDS split, or slice of one, that is validated on.
    tfds_validation_split: str = "validation"
    # Field of a record (.jsonl, .parquet, TFDS) that holds the text.
    text_field: str = "text"
    # Share of the documents that is kept for validation, by a hash of the document; not for TFDS.
    validation_fraction: float = 0.05
    # Pieces of the SentencePiece vocabulary that is trained here, without the 100 sentinels.
    vocabulary_size: int = 4096
    # SentencePiece .model to use instead of training one; empty: train.
    vocabulary_file: str = ""
    # Tokens of the training split at which preparing stops; 0: all.
    max_train_tokens: int = 0
    # Tokens of the validation split at which preparing stops; 0: all.
    max_validation_tokens: int = 1_000_000
    # Tokens of one example on the input side.
    inputs_length: int = 512
    # Tokens of one example on the target side; span_corruption only.
    targets_length: int = 114
    # Share of the tokens that span corruption removes.
    noise_density: float = 0.15
    # Mean tokens of a removed span.
    mean_span_length: float = 3.0
    # Share of the positions that mlm predicts.
    mask_rate: float = 0.15
    # Every how-manieth training window is held out, for a model that another run needs; None: none.
    holdout_every: int | None = None
    # Which training windows are read: "target" (not held out) or "held_out"; None: all.
    train_part: str | None = None
    # Whether a training window has the same masks in every run and epoch; None: drawn anew.
    masks_by_window: bool | None = None
    # Height and width in pixels that images of a TFDS set are brought to; digits have 8.
    image_size: int = 8
    # Channels that images of a TFDS set are brought to, 1 (grey) or 3 (colour); digits have 1.
    image_channels: int = 1

    @property
    def source(self) -> Literal["embedded", "files", "tfds", "digits", "tfds_images", "task"]:
        """Where the examples come from: what was given, or what every machine has."""
        if self.task:
            return "task"
        if self.files:
            return "files"
        if self.objective == "image_classification":
            return "tfds_images" if self.tfds_name else "digits"
        return "tfds" if self.tfds_name else "embedded"

    def check(self) -> None:
        """Raises UserError for values that no data set could be prepared with."""
        if self.objective not in OBJECTIVES:
            raise UserError(
                f"data.objective={self.objective}: no such objective."
                f"{did_you_mean(self.objective, OBJECTIVES)} One of {', '.join(OBJECTIVES)}."
            )
        self._check_task()
        if self.files and self.tfds_name:
            raise UserError(
                f"data.files={self.files} and data.tfds_name={self.tfds_name}: give one of the two."
            )
        if self.objective == "image_classification" and self.files:
            raise UserError(
                f"data.files={self.files}: image_classification reads no files; set data.tfds_name"
                " to a TFDS set of images, or leave both empty for the embedded digits."
            )
        if self.image_channels not in (1, 3):
            raise UserError(f"data.image_channels={self.image_channels}: must be 1 or 3.")
        if self.source == "digits" and (self.image_size, self.image_channels) != (8, 1):
            raise UserError(
                f"data.image_size={self.image_size}, data.image_channels={self.image_channels}: the"
                " embedded digits have size 8 and 1 channel; for others set data.tfds_name."
            )
        self._check_parts()
        for name, low, high in (
            ("validation_fraction", 0.0, 1.0),
            ("noise_density", 0.0, 1.0),
            ("mask_rate", 0.0, 1.0),
        ):
            if not low < getattr(self, name) < high:
                raise UserError(f"data.{name}={getattr(self, name)}: must be above 0 and below 1.")
        for name, least in (
            ("vocabulary_size", 300),
            ("max_train_tokens", 0),
            ("max_validation_tokens", 0),
            ("inputs_length", 8),
            ("targets_length", 1),
            ("mean_span_length", 1),
            ("image_size", 1),
        ):
            if getattr(self, name) < least:
                raise UserError(f"data.{name}={getattr(self, name)}: must be at least {least}.")
        from experiments.data.objectives import objective_of  # which needs this file

        objective_of(self)

    def _check_task(self) -> None:
        if (self.task is not None) != (self.objective in TASK_OBJECTIVES):
            raise UserError(
                f"data.objective={self.objective}, data.task={self.task}:"
                f" {' and '.join(TASK_OBJECTIVES)} are of downstream tasks, and of them only;"
                " experiments.finetune sets both."
            )
        if self.dir is not None and self.task is None:
            raise UserError(f"data.dir={self.dir}: is for downstream tasks; set data.files.")
        if self.task is None:
            return
        if self.files or self.train_part or self.masks_by_window:
            raise UserError(
                f"data.task={self.task}: data.files, data.train_part and data.masks_by_window are"
                " for pre-training."
            )
        if not self.vocabulary_file:
            raise UserError(
                f"data.task={self.task}: data.vocabulary_file is empty; it must be the one that the"
                " model was trained with."
            )
        from experiments.downstream.sources import check_task  # which needs this file

        check_task(self)

    def _check_parts(self) -> None:
        if self.holdout_every is not None and self.holdout_every < 2:
            raise UserError(
                f"data.holdout_every={self.holdout_every}: must be at least 2; 5 holds out 20 %."
            )
        if self.train_part not in (None, *TRAIN_PARTS):
            raise UserError(
                f"data.train_part={self.train_part}: not one of {', '.join(TRAIN_PARTS)}."
            )
        if self.train_part is not None and self.holdout_every is None:
            raise UserError(
                f"data.train_part={self.train_part}: nothing is held out; set data.holdout_every."
            )
        if self.objective == "image_classification" and (self.train_part or self.masks_by_window):
            raise UserError(
                "data.train_part and data.masks_by_window: for text only, images have neither."
            )
