"""The objective that a configuration names: what is drawn, and what a batch is made of."""

import math
from typing import Protocol

import numpy as np

from experiments.data.config import DataConfig
from experiments.data.digits import DigitImages
from experiments.data.images import ImageClassification, Split
from experiments.data.mlm import MaskedLanguageModel
from experiments.data.span_corruption import SpanCorruption
from experiments.data.task_examples import Classification, TextToText

BatchSpec = dict[str, tuple[tuple[int, ...], np.dtype]]


class Objective(Protocol):
    """How rows of prepared data become examples."""

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the prepared arrays that are read."""

    @property
    def weight(self) -> str:
        """Name of the array of a batch whose zeros weigh nothing in the loss."""

    @property
    def words_per_row(self) -> int:
        """Random words that one example takes."""

    @property
    def window_length(self) -> int:
        """Tokens of the corpus that an example is cut from; 0 for images."""

    def spec(self, batch_size: int) -> BatchSpec:
        """Returns (shape, dtype) of each array of a batch."""

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns the batch made of `rows` of the prepared arrays and their random words."""


def objective_of(cfg: DataConfig, split: Split = "train") -> Objective:
    """Returns the objective of a configuration. Raises UserError where its sizes do not fit.

    The split decides only whether images are augmented; tokens are drawn alike in both.
    """
    if cfg.objective == "span_corruption":
        return SpanCorruption.of(cfg)
    if cfg.objective == "mlm":
        return MaskedLanguageModel.of(cfg)
    if cfg.objective == "classification":
        return Classification.of(cfg)
    if cfg.objective == "text_to_text":
        return TextToText.of(cfg)
    return DigitImages() if cfg.source == "digits" else ImageClassification.of(cfg, split)


def batch_spec(cfg: DataConfig, batch_size: int) -> BatchSpec:
    """Returns (shape, dtype) of each array of a batch, without any data."""
    return objective_of(cfg).spec(batch_size)


def tokens_per_batch(cfg: DataConfig, batch_size: int) -> int:
    """Returns the tokens on the input side of a batch, or its images: what scaling laws call D."""
    spec = batch_spec(cfg, batch_size)
    name = next(name for name in ("inputs", "tokens", "labels") if name in spec)
    return math.prod(spec[name][0])
