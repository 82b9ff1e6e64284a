"""T5's span corruption, for a whole batch at once (Raffel et al. 2020, 3.1.4). NumPy only."""

import dataclasses

import numpy as np

from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.randomness import choose_sorted
from models.errors import UserError

EOS = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpanCorruption:
    """Sizes of one corrupted example; they are the same for every example."""

    arrays = ("tokens",)
    weight = "targets"  # a target of pad weighs nothing

    # Tokens that are read from the corpus.
    window_length: int
    # Tokens that are removed from the inputs and asked for in the targets.
    num_noise_tokens: int
    # Runs in which they are removed.
    num_spans: int
    # Tokens of the inputs, padded.
    inputs_length: int
    # Tokens of the targets, padded.
    targets_length: int

    @classmethod
    def of(cls, cfg: DataConfig) -> "SpanCorruption":
        """Returns the sizes for the longest window whose inputs fit (T5's random_spans_helper).

        Raises UserError where the targets do not fit or the sentinels do not suffice.
        """

        def sizes(window_length: int) -> tuple[int, int]:
            num_noise = round(window_length * cfg.noise_density)
            num_noise = min(max(num_noise, 1), window_length - 1)
            num_spans = max(round(num_noise / cfg.mean_span_length), 1)
            return num_noise, min(num_spans, window_length - num_noise)

        def inputs_needed(window_length: int) -> int:
            num_noise, num_spans = sizes(window_length)
            return window_length - num_noise + num_spans + 1

        window_length = 2
        while inputs_needed(window_length + 1) <= cfg.inputs_length:
            window_length += 1
        num_noise, num_spans = sizes(window_length)
        targets_needed = num_noise + num_spans + 1
        if targets_needed > cfg.targets_length:
            raise UserError(
                f"data.targets_length={cfg.targets_length}: data.inputs_length={cfg.inputs_length}"
                f" at data.noise_density={cfg.noise_density} and data.mean_span_length="
                f"{cfg.mean_span_length} needs {targets_needed}."
            )
        if num_spans > NUM_SENTINELS:
            raise UserError(
                f"data.inputs_length={cfg.inputs_length}: needs {num_spans} sentinels and there"
                f" are {NUM_SENTINELS}. Shorten it or raise data.mean_span_length."
            )
        return cls(
            window_length=window_length,
            num_noise_tokens=num_noise,
            num_spans=num_spans,
            inputs_length=cfg.inputs_length,
            targets_length=cfg.targets_length,
        )

    @property
    def words_per_row(self) -> int:
        """Random words that one example takes."""
        return self.window_length - 2

    def spec(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns (shape, dtype) of each array of a batch."""
        return {
            "inputs": ((batch_size, self.inputs_length), np.dtype(np.int32)),
            "targets": ((batch_size, self.targets_length), np.dtype(np.int32)),
        }

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns int32 `inputs` (B, S) and `targets` (B, T) of `tokens` (B, window_length).

        Inputs hold each removed span's sentinel in its place; targets hold each sentinel followed
        by the span. Sentinels count down from vocab_size - 1; both sides end with eos.
        """
        windows = rows["tokens"]
        kept_lengths, noise_lengths = self._span_lengths(words)
        noise = self._noise_mask(kept_lengths, noise_lengths)
        num_kept = self.window_length - self.num_noise_tokens
        kept = windows[~noise].reshape(-1, num_kept)
        removed = windows[noise].reshape(-1, self.num_noise_tokens)
        order = np.arange(self.num_spans)[None]
        sentinels_after_kept = np.cumsum(kept_lengths, axis=1) + order
        sentinels_before_removed = np.cumsum(noise_lengths, axis=1) - noise_lengths + order
        return {
            "inputs": _interleave(kept, sentinels_after_kept, vocab_size, self.inputs_length),
            "targets": _interleave(
                removed, sentinels_before_removed, vocab_size, self.targets_length
            ),
        }

    def _span_lengths(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lengths (B, num_spans) of the kept and of the removed runs, alternating.

        Each is a uniform draw among the ways to cut the tokens into num_spans non-empty runs
        (T5's _random_segmentation); a window starts with a kept run.
        """
        num_kept = self.window_length - self.num_noise_tokens
        kept_words, noise_words = np.split(words, [num_kept - 1], axis=1)
        return (
            _random_segmentation(kept_words, num_kept, self.num_spans),
            _random_segmentation(noise_words, self.num_noise_tokens, self.num_spans),
        )

    def _noise_mask(self, kept_lengths: np.ndarray, noise_lengths: np.ndarray) -> np.ndarray:
        """Returns bool (B, window_length), True where a token is removed."""
        ends = np.cumsum(kept_lengths + noise_lengths, axis=1)
        steps = np.zeros((len(ends), self.window_length + 1), np.int8)
        np.put_along_axis(steps, ends - noise_lengths, np.int8(1), axis=1)
        np.put_along_axis(steps, ends, np.int8(-1), axis=1)
        return np.cumsum(steps[:, :-1], axis=1, dtype=np.int8).astype(bool)


def _random_segmentation(words: np.ndarray, num_items: int, num_segments: int) -> np.ndarray:
    """Returns int64 (B, num_segments) positive lengths that add up to num_items."""
    cuts = choose_sorted(words, num_segments - 1) + 1
    return np.diff(cuts, axis=1, prepend=0, append=num_items)


def _interleave(
    text: np.ndarray, sentinel_positions: np.ndarray, vocab_size: int, length: int
) -> np.ndarray:
    """Returns int32 (B, length): sentinels at their positions, text between, eos, padding."""
    num_rows, num_spans = sentinel_positions.shape
    filled = text.shape[1] + num_spans
    is_text = np.zeros((num_rows, length), bool)
    is_text[:, :filled] = True
    np.put_along_axis(is_text, sentinel_positions, False, axis=1)
    out = np.zeros((num_rows, length), np.int32)
    out[is_text] = text.reshape(-1)
    sentinels = vocab_size - 1 - np.arange(num_spans, dtype=np.int32)[None]
    np.put_along_axis(out, sentinel_positions, sentinels, axis=1)
    out[:, filled] = EOS
    return out
