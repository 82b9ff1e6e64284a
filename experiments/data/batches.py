"""Batches as a function of (seed, i): what training and evaluation read. NumPy only."""

import numpy as np

from experiments.data.config import DataConfig
from experiments.data.image_sets import ImageRecords
from experiments.data.images import Split
from experiments.data.objectives import objective_of
from experiments.data.randomness import (
    MASKS,
    VALIDATION_MASKS,
    WINDOW_MASKS,
    row_words,
    window_order,
)
from experiments.data.windows import Prepared
from models.errors import UserError

Batch = dict[str, np.ndarray]


class Batches:
    """One split of prepared data, cut into batches of fixed shapes.

    Training rows are an endless stream in which every epoch visits each window once, in another
    order; row r of it, masks included, is a function of (seed, r) alone. With
    `masks_by_window` the masks are a function of the window instead, the same in every run, so
    that two models can be asked about the very same example. Validation is the
    windows in their order with masks of their own: the seed changes nothing; the last batch is
    filled up with windows that weigh nothing.
    """

    def __init__(self, prepared: Prepared, cfg: DataConfig, split: Split, batch_size: int) -> None:
        if batch_size < 1:
            raise UserError(f"batch size {batch_size}: must be at least 1.")
        self.split = split
        self.batch_size = batch_size
        self._objective = objective_of(cfg, split)
        self._vocab_size = prepared.vocab_size
        self._masks_by_window = bool(cfg.masks_by_window) and split == "train"
        self._arrays: dict[str, np.ndarray | ImageRecords]
        if cfg.source == "tfds_images":
            self._arrays = {"records": ImageRecords(cfg, split)}
        else:
            self._arrays = {name: prepared.array(split, name) for name in self._objective.arrays}
        self.num_windows = len(self._arrays[self._objective.arrays[0]])
        self._part = _Part(cfg, self.num_windows) if split == "train" and cfg.train_part else None
        if self._part:
            self.num_windows = self._part.size

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each array of a batch."""
        spec = self._objective.spec(self.batch_size)
        return {name: shape for name, (shape, _) in spec.items()}

    @property
    def steps_per_epoch(self) -> int:
        """Batches that see every window: of validation exactly once, of training at least once."""
        return -(-self.num_windows // self.batch_size)

    def share(self, process_index: int, process_count: int) -> slice:
        """Returns the rows of every batch that one of several processes makes."""
        if self.batch_size % process_count:
            raise UserError(
                f"batch size {self.batch_size}: not divisible by {process_count} processes."
            )
        rows = self.batch_size // process_count
        return slice(process_index * rows, (process_index + 1) * rows)

    def batch(self, seed: int, i: int, rows: slice = slice(None)) -> Batch:
        """Returns batch `i`, or the given contiguous `rows` of it; validation repeats itself."""
        start, stop, _ = rows.indices(self.batch_size)
        if self.split != "train":
            first = (i % self.steps_per_epoch) * self.batch_size + start
            stream = np.arange(first, first + stop - start)
            batch = self._examples(stream % self.num_windows, 0, VALIDATION_MASKS, first)
            # Only the weight goes, the inputs stay valid, so that nothing can become NaN.
            batch[self._objective.weight][stream >= self.num_windows] = 0
            return batch
        first = i * self.batch_size + start
        windows = self._windows(seed, first, stop - start)
        if self._masks_by_window:
            return self.examples_of(windows)
        return self._examples(windows, seed, MASKS, first)

    def windows(self, seed: int, i: int) -> np.ndarray:
        """Returns which windows training batch `i` is made of, int64 (batch_size,)."""
        return self._windows(seed, i * self.batch_size, self.batch_size)

    def examples_of(self, windows: np.ndarray) -> Batch:
        """Returns the examples of these windows, each with the masks that are its own."""
        words_per_row = self._objective.words_per_row
        words = np.concatenate(
            [row_words(0, WINDOW_MASKS, int(window), 1, words_per_row) for window in windows]
        )
        rows = {name: array[windows] for name, array in self._arrays.items()}
        return self._objective.examples(rows, words, self._vocab_size)

    def _windows(self, seed: int, first_row: int, count: int) -> np.ndarray:
        stream = np.arange(first_row, first_row + count)
        windows = window_order(seed, stream, self.num_windows)
        return self._part.windows(windows) if self._part else windows

    def _examples(self, windows: np.ndarray, seed: int, stream: int, first_row: int) -> Batch:
        """Returns the examples made of `windows`, with the draws of the rows from `first_row`."""
        words_per_row = self._objective.words_per_row
        words = row_words(seed, stream, first_row, len(windows), words_per_row)
        rows = {name: array[windows] for name, array in self._arrays.items()}
        return self._objective.examples(rows, words, self._vocab_size)


class _Part:
    """The windows that are held out, every k-th one, or all the others."""

    def __init__(self, cfg: DataConfig, num_windows: int) -> None:
        self._every = cfg.holdout_every or num_windows
        self._held_out = cfg.train_part == "held_out"
        held_out = -(-num_windows // self._every)
        self.size = held_out if self._held_out else num_windows - held_out
        if not self.size:
            raise UserError(
                f"data.train_part={cfg.train_part}: {num_windows} windows leave none in it."
            )

    def windows(self, members: np.ndarray) -> np.ndarray:
        """Returns the windows of these members of the part, both counted from 0."""
        if self._held_out:
            return members * self._every
        # Window 0 and every k-th after it are held out; k − 1 lie between two of them.
        return members + members // (self._every - 1) + 1
