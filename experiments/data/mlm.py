"""BERT's masked language modelling, for a whole batch at once (Devlin et al. 2019, 3.1)."""

import dataclasses

import numpy as np

from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.randomness import choose_sorted

# pad, eos and unk are never drawn as a random token.
_FIRST_TEXT_ID = 3
_MASKED, _RANDOM = 0.8, 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLanguageModel:
    """Sizes of one masked example; they are the same for every example."""

    arrays = ("tokens",)
    weight = "masked_weights"

    # Tokens that are read from the corpus and given to the model.
    window_length: int
    # Positions that are predicted.
    num_predicted: int

    @classmethod
    def of(cls, cfg: DataConfig) -> "MaskedLanguageModel":
        """Returns the sizes for a configuration: exactly round(mask_rate · length) positions."""
        return cls(
            window_length=cfg.inputs_length,
            num_predicted=max(round(cfg.mask_rate * cfg.inputs_length), 1),
        )

    @property
    def words_per_row(self) -> int:
        """Random words that one example takes."""
        return self.window_length + self.num_predicted

    def spec(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns (shape, dtype) of each array of a batch."""
        predicted = (batch_size, self.num_predicted)
        return {
            "tokens": ((batch_size, self.window_length), np.dtype(np.int32)),
            "masked_positions": (predicted, np.dtype(np.int32)),
            "masked_labels": (predicted, np.dtype(np.int32)),
            "masked_weights": (predicted, np.dtype(np.float32)),
        }

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns int32 `tokens` (B, S), `masked_positions`, `masked_labels` (B, P), and weights.

        Of the predicted positions 80 % hold the mask token, vocab_size - 1 (the first sentinel),
        10 % a random piece and 10 % what they held.
        """
        windows = rows["tokens"]
        position_words, token_words = np.split(words, [self.window_length], axis=1)
        positions = choose_sorted(position_words, self.num_predicted)
        labels = np.take_along_axis(windows, positions, axis=1).astype(np.int32)
        high, low = token_words >> np.uint64(32), token_words & np.uint64(0xFFFFFFFF)
        num_pieces = np.uint64(vocab_size - NUM_SENTINELS - _FIRST_TEXT_ID)
        pieces = (low * num_pieces >> np.uint64(32)).astype(np.int32) + _FIRST_TEXT_ID
        choice = high / 2.0**32
        shown = np.where(choice < _MASKED + _RANDOM, pieces, labels)
        shown = np.where(choice < _MASKED, np.int32(vocab_size - 1), shown)
        tokens = windows.astype(np.int32)
        np.put_along_axis(tokens, positions, shown, axis=1)
        return {
            "tokens": tokens,
            "masked_positions": positions.astype(np.int32),
            "masked_labels": labels,
            "masked_weights": np.ones(labels.shape, np.float32),
        }
