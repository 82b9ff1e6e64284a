"""Examples of downstream tasks as models read them: made once, nothing is drawn. NumPy only."""

import dataclasses

import numpy as np

from experiments.data.config import DataConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification:
    """Texts between separators, with the number of a class or a score."""

    arrays = ("tokens", "types", "labels")
    weight = "weights"
    words_per_row = 0
    window_length = 0

    # Tokens of an example, padding included.
    length: int

    @classmethod
    def of(cls, cfg: DataConfig) -> "Classification":
        """Returns the sizes of a configuration."""
        return cls(length=cfg.inputs_length)

    def spec(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns (shape, dtype) of each array of a batch."""
        tokens = ((batch_size, self.length), np.dtype(np.int32))
        number = ((batch_size,), np.dtype(np.float32))
        return {"tokens": tokens, "token_types": tokens, "labels": number, "weights": number}

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns `tokens` and `token_types` (B, S), `labels` and `weights` (B,)."""
        del words, vocab_size
        return {
            "tokens": rows["tokens"].astype(np.int32),
            "token_types": rows["types"].astype(np.int32),
            "labels": rows["labels"].astype(np.float32),
            "weights": np.ones(len(rows["labels"]), np.float32),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextToText:
    """A text that names its fields, and the text that is to be answered."""

    arrays = ("inputs", "targets")
    weight = "targets"
    words_per_row = 0
    window_length = 0

    # Tokens of an input and of an answer, padding included.
    inputs_length: int
    targets_length: int

    @classmethod
    def of(cls, cfg: DataConfig) -> "TextToText":
        """Returns the sizes of a configuration."""
        return cls(inputs_length=cfg.inputs_length, targets_length=cfg.targets_length)

    def spec(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns (shape, dtype) of each array of a batch."""
        return {
            "inputs": ((batch_size, self.inputs_length), np.dtype(np.int32)),
            "targets": ((batch_size, self.targets_length), np.dtype(np.int32)),
        }

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns `inputs` (B, S) and `targets` (B, T), padded with 0."""
        del words, vocab_size
        return {name: rows[name].astype(np.int32) for name in self.arrays}


def join_segments(
    given: list[np.ndarray] | list[list[int]], length: int, *, first: int, separator: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns tokens and types (length,): `first`, then each segment with a separator after it.

    The first segment is of type 0, the others of type 1. Where there is too much, the longest
    segment loses its last token until all fits (Devlin et al. 2019, released code).
    """
    segments = [list(segment) for segment in given]
    room = length - 1 - len(segments)
    excess = sum(map(len, segments)) - room
    while excess > 0:
        sizes = sorted({len(segment) for segment in segments}, reverse=True)
        longest = [segment for segment in segments if len(segment) == sizes[0]]
        # All of the longest are cut to the next size at once, or as far as is needed.
        lower = sizes[1] if len(sizes) > 1 else 0
        each = max(1, min(sizes[0] - lower, excess // len(longest)))
        for segment in longest:
            cut = min(each, excess)
            del segment[len(segment) - cut :]
            excess -= cut
    tokens, types = np.zeros(length, np.int32), np.zeros(length, np.uint8)
    tokens[0] = first
    end = 1
    for number, segment in enumerate(segments):
        inside = [*segment, separator]
        tokens[end : end + len(inside)] = inside
        types[end : end + len(inside)] = min(number, 1)
        end += len(inside)
    return tokens, types
