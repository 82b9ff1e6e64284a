"""Batches as a function of (seed, i): what training and evaluation read. NumPy only."""

import numpy as np

from experiments.data.config import DataConfig
from experiments.data.image_sets import ImageRecords
from experiments.data.images import Split
from experiments.data.objectives import objective_of
from experiments.data.randomness import MASKS, VALIDATION_MASKS, row_words, window_order
from experiments.data.windows import Prepared
from models.errors import UserError

Batch = dict[str, np.ndarray]


class Batches:
    """One split of prepared data, cut into batches of fixed shapes.

    Training rows are an endless stream in which every epoch visits each window once, in another
    order; row r of it, masks included, is a function of (seed, r) alone. Validation is the
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
        self._arrays: dict[str, np.ndarray | ImageRecords]
        if cfg.source == "tfds_images":
            self._arrays = {"records": ImageRecords(cfg, split)}
        else:
            self._arrays = {name: prepared.array(split, name) for name in self._objective.arrays}
        self.num_windows = len(self._arrays[self._objective.arrays[0]])

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
        if self.split == "validation":
            first = (i % self.steps_per_epoch) * self.batch_size + start
            stream = np.arange(first, first + stop - start)
            batch = self._examples(stream % self.num_windows, 0, VALIDATION_MASKS, first)
            # Only the weight goes, the inputs stay valid, so that nothing can become NaN.
            batch[self._objective.weight][stream >= self.num_windows] = 0
            return batch
        first = i * self.batch_size + start
        stream = np.arange(first, first + stop - start)
        return self._examples(window_order(seed, stream, self.num_windows), seed, MASKS, first)

    def _examples(self, windows: np.ndarray, seed: int, stream: int, first_row: int) -> Batch:
        """Returns the examples made of `windows`, with the draws of the rows from `first_row`."""
        words_per_row = self._objective.words_per_row
        words = row_words(seed, stream, first_row, len(windows), words_per_row)
        rows = {name: array[windows] for name, array in self._arrays.items()}
        return self._objective.examples(rows, words, self._vocab_size)
