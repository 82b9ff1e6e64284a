"""Images of digits as the vision model reads them. NumPy only."""

import dataclasses

import numpy as np

NUM_CLASSES = 10
IMAGE_SHAPE = (8, 8, 1)
_MOST_GREY = 16


@dataclasses.dataclass(frozen=True)
class DigitImages:
    """The 8 × 8 digits with their labels; nothing about them is drawn at random."""

    arrays = ("images", "labels")
    weight = "weights"
    words_per_row = 0
    window_length = 0

    def spec(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns (shape, dtype) of each array of a batch."""
        return {
            "images": ((batch_size, *IMAGE_SHAPE), np.dtype(np.float32)),
            "labels": ((batch_size,), np.dtype(np.int32)),
            "weights": ((batch_size,), np.dtype(np.float32)),
        }

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns `images` in [-1, 1] (B, 8, 8, 1), `labels` (B,) and `weights` (B,)."""
        del words, vocab_size
        return {
            "images": rows["images"].astype(np.float32) / np.float32(_MOST_GREY / 2)
            - np.float32(1),
            "labels": rows["labels"].astype(np.int32),
            "weights": np.ones(len(rows["labels"]), np.float32),
        }
