"""Masked language modelling: exact counts, 80/10/10, labels that restore the text."""

import numpy as np
from scipy import stats

from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.mlm import MaskedLanguageModel
from experiments.data.randomness import MASKS, row_words

VOCAB_SIZE = 1100
MASK = VOCAB_SIZE - 1


def make(num_rows: int, mask_rate: float = 0.15, length: int = 128, seed: int = 0):
    masking = MaskedLanguageModel.of(
        DataConfig(objective="mlm", inputs_length=length, mask_rate=mask_rate)
    )
    windows = np.random.default_rng(0).integers(1, 1000, (num_rows, length), np.uint16)
    words = row_words(seed, MASKS, 0, num_rows, masking.words_per_row)
    return masking, windows, masking.examples({"tokens": windows}, words, VOCAB_SIZE)


def test_exactly_so_many_positions_are_predicted():
    for rate, expected in ((0.15, 19), (0.25, 32)):
        masking, _, batch = make(50, rate)
        assert batch["masked_positions"].shape == (50, expected)
        assert all(len(set(row)) == expected for row in batch["masked_positions"].tolist())
        for name, (shape, dtype) in masking.spec(50).items():
            assert batch[name].shape == shape and batch[name].dtype == dtype


def test_labels_restore_the_text_and_nothing_else_changes():
    _, windows, batch = make(50)
    restored = batch["tokens"].copy()
    np.put_along_axis(restored, batch["masked_positions"], batch["masked_labels"], axis=1)
    np.testing.assert_array_equal(restored, windows)
    assert (batch["masked_weights"] == 1).all()


def test_80_10_10():
    _, _, batch = make(4000)
    shown = np.take_along_axis(batch["tokens"], batch["masked_positions"], axis=1)
    masked = (shown == MASK).sum()
    kept = (shown == batch["masked_labels"]).sum()
    # A random piece is the right one by chance once in 997.
    shares = np.array([0.8, 0.1 * (1 - 1 / 997), 0.1 * (1 + 1 / 997)]) * shown.size
    seen = [masked, shown.size - masked - kept, kept]
    assert stats.chisquare(seen, shares).pvalue > 1e-3


def test_random_pieces_are_any_but_specials_and_sentinels():
    _, _, batch = make(6000)
    shown = np.take_along_axis(batch["tokens"], batch["masked_positions"], axis=1)
    drawn = shown[(shown != MASK) & (shown != batch["masked_labels"])]
    counts = np.bincount(drawn, minlength=VOCAB_SIZE)
    assert counts[:3].sum() == 0 and counts[VOCAB_SIZE - NUM_SENTINELS :].sum() == 0
    assert stats.chisquare(counts[3 : VOCAB_SIZE - NUM_SENTINELS]).pvalue > 1e-3


def test_every_position_is_as_likely():
    _, _, batch = make(8000)
    counts = np.bincount(batch["masked_positions"].reshape(-1), minlength=128)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_masks_follow_the_seed():
    first, again, other = (make(4, seed=seed)[2]["tokens"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
