"""Span corruption does what T5 published: sizes, layout, reconstruction, distribution."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.randomness import MASKS, row_words
from experiments.data.span_corruption import SpanCorruption
from models.errors import UserError

VOCAB_SIZE = 1100
FIRST_SENTINEL, LAST_SENTINEL = VOCAB_SIZE - 1, VOCAB_SIZE - NUM_SENTINELS


def random_windows(num_rows: int, length: int, seed: int = 0) -> np.ndarray:
    """Token windows, with some eos inside, as at the ends of documents."""
    return np.random.default_rng(seed).integers(1, LAST_SENTINEL, (num_rows, length), np.uint16)


def corrupt(corruption: SpanCorruption, windows: np.ndarray, seed: int = 0):
    words = row_words(seed, MASKS, 0, len(windows), corruption.words_per_row)
    return corruption.examples({"tokens": windows}, words, VOCAB_SIZE)


def spans_of(tokens: np.ndarray) -> dict[int, list[int]]:
    """What follows each sentinel up to the next, by sentinel; -1 for what precedes the first."""
    spans: dict[int, list[int]] = {-1: []}
    current = -1
    for token in tokens.tolist():
        if token >= LAST_SENTINEL:
            current = token
            assert current not in spans, "a sentinel occurs twice"
            spans[current] = []
        else:
            spans[current].append(token)
    return spans


def unpadded(tokens: np.ndarray) -> np.ndarray:
    """Takes the padding and the eos at the end away, and sees that they are there."""
    tokens = np.trim_zeros(tokens, "b")
    assert tokens[-1] == 1
    return tokens[:-1]


def test_published_sizes():
    assert SpanCorruption.of(DataConfig()) == SpanCorruption(
        window_length=568,
        num_noise_tokens=85,
        num_spans=28,
        inputs_length=512,
        targets_length=114,
    )


@pytest.mark.parametrize("inputs_length", [64, 128, 256, 512, 1024])
def test_the_window_is_the_longest_that_fits(inputs_length):
    """T5's random_spans_helper, written as its definition: the largest length that still fits."""

    def inputs_needed(length):
        noise = round(length * 0.15)
        return length - noise + round(noise / 3.0) + 1

    cfg = DataConfig(inputs_length=inputs_length, targets_length=inputs_length)
    length = SpanCorruption.of(cfg).window_length
    assert inputs_needed(length) <= inputs_length < inputs_needed(length + 1)


@settings(max_examples=80, deadline=None)
@given(
    inputs_length=st.integers(8, 200),
    noise_density=st.floats(0.05, 0.6),
    mean_span_length=st.floats(1.0, 10.0),
    seed=st.integers(0, 2**63),
)
def test_the_text_is_reconstructed(inputs_length, noise_density, mean_span_length, seed):
    cfg = DataConfig(
        inputs_length=inputs_length,
        targets_length=1000,
        noise_density=noise_density,
        mean_span_length=mean_span_length,
    )
    corruption = SpanCorruption.of(cfg)
    windows = random_windows(3, corruption.window_length, seed % 1000)
    batch = corrupt(corruption, windows, seed)
    for window, inputs, targets in zip(windows, batch["inputs"], batch["targets"], strict=True):
        kept, removed = spans_of(unpadded(inputs)), spans_of(unpadded(targets))
        sentinels = [FIRST_SENTINEL - k for k in range(corruption.num_spans)]
        assert list(kept) == [-1, *sentinels]
        assert list(removed) == [-1, *sentinels]
        assert kept[-1] and not removed[-1]
        assert all(removed[s] for s in sentinels)
        assert all(kept[s] for s in sentinels[:-1]) and not kept[sentinels[-1]]
        assert sum(map(len, removed.values())) == corruption.num_noise_tokens
        restored = kept[-1] + [t for s in sentinels for t in removed[s] + kept[s]]
        assert restored == window.tolist()


def test_equal_to_t5s_algorithm_as_loops():
    """Re-encodes each example from its own mask with T5's two substitutions, token by token."""
    corruption = SpanCorruption.of(DataConfig())
    windows = random_windows(16, corruption.window_length)
    batch = corrupt(corruption, windows)
    for window, inputs, targets in zip(windows, batch["inputs"], batch["targets"], strict=True):
        kept = spans_of(unpadded(inputs))
        mask: list[bool] = []
        for sentinel, span in spans_of(unpadded(targets)).items():
            mask += [True] * len(span) + [False] * len(kept[sentinel])
        assert sum(mask) == 85
        np.testing.assert_array_equal(inputs, [*substitute(window, mask), 1])
        np.testing.assert_array_equal(targets, [*substitute(window, [not m for m in mask]), 1])


def substitute(tokens, mask):
    """T5's noise_span_to_unique_sentinel: each run that `mask` marks becomes one sentinel."""
    out, sentinel = [], FIRST_SENTINEL
    for k, token in enumerate(tokens):
        if not mask[k]:
            out.append(int(token))
        elif k == 0 or not mask[k - 1]:
            out.append(sentinel)
            sentinel -= 1
    return out


def small_corruption() -> SpanCorruption:
    """14 kept and 6 removed tokens in 2 spans: 13 × 5 = 65 masks."""
    return SpanCorruption(
        window_length=20, num_noise_tokens=6, num_spans=2, inputs_length=20, targets_length=12
    )


def removed_positions(corruption: SpanCorruption, num_rows: int) -> list[tuple[int, ...]]:
    windows = np.tile(np.arange(2, 22, dtype=np.uint16), (num_rows, 1))
    targets = corrupt(corruption, windows, seed=5)["targets"]
    return [tuple(t[(t > 1) & (t < LAST_SENTINEL)] - 2) for t in targets]


def test_every_mask_is_equally_likely():
    """T5 draws both segmentations uniformly, so that all 65 pairs have the same probability."""
    seen: dict[tuple[int, ...], int] = {}
    for positions in removed_positions(small_corruption(), 26_000):
        seen[positions] = seen.get(positions, 0) + 1
    possible = {
        (*range(a, a + n), *range(a + n + 14 - a, 20))
        for a, n in itertools.product(range(1, 14), range(1, 6))
    }
    assert set(seen) == possible
    assert stats.chisquare(list(seen.values())).pvalue > 1e-3


def test_distributed_as_t5s_loop():
    """Two samples, ours and one of T5's _random_segmentation as a loop, look alike."""
    draw = random.Random(1)

    def random_segmentation(num_items, num_segments):
        first_in_segment = [1] * (num_segments - 1) + [0] * (num_items - num_segments)
        draw.shuffle(first_in_segment)
        lengths = [1]
        for first in first_in_segment:
            if first:
                lengths.append(1)
            else:
                lengths[-1] += 1
        return lengths

    cfg = DataConfig(inputs_length=64, targets_length=20)
    corruption = SpanCorruption.of(cfg)
    num_kept = corruption.window_length - corruption.num_noise_tokens
    num_rows = 4000
    theirs = np.zeros((num_rows, corruption.window_length), bool)
    for row in theirs:
        position = 0
        for kept, noise in zip(
            random_segmentation(num_kept, corruption.num_spans),
            random_segmentation(corruption.num_noise_tokens, corruption.num_spans),
            strict=True,
        ):
            row[position + kept : position + kept + noise] = True
            position += kept + noise
    words = row_words(9, MASKS, 0, num_rows, corruption.words_per_row)
    ours = corruption._noise_mask(*corruption._span_lengths(words))
    counts = np.stack([ours.sum(0), theirs.sum(0)])[:, 1:-1]
    assert not ours[:, 0].any() and ours[:, -1].all()  # as in T5, by construction
    # Positions of a row depend on each other, so this is a bound on each, not one test of all.
    expected = counts.mean(0)
    scale = np.sqrt(2 * expected * (1 - expected / num_rows))
    assert (np.abs(counts[0] - counts[1]) / scale).max() < 4.0


def test_masks_follow_the_seed_and_the_row():
    corruption = SpanCorruption.of(DataConfig())
    window = random_windows(1, corruption.window_length)
    same = corrupt(corruption, np.repeat(window, 2, axis=0), seed=1)
    again = corrupt(corruption, np.repeat(window, 2, axis=0), seed=1)
    other = corrupt(corruption, np.repeat(window, 2, axis=0), seed=2)
    np.testing.assert_array_equal(same["inputs"], again["inputs"])
    assert (same["inputs"][0] != same["inputs"][1]).any()
    assert (same["inputs"] != other["inputs"]).any()


def test_shorter_inputs_and_targets_than_the_shapes_are_padded():
    cfg = DataConfig(inputs_length=100, targets_length=50)
    corruption = SpanCorruption.of(cfg)
    batch = corrupt(corruption, random_windows(4, corruption.window_length))
    for name, (shape, dtype) in corruption.spec(4).items():
        assert batch[name].shape == shape and batch[name].dtype == dtype
    filled = corruption.num_noise_tokens + corruption.num_spans + 1
    assert (batch["targets"][:, filled:] == 0).all() and (batch["targets"][:, :filled] > 0).all()


def test_too_short_targets_are_refused_with_what_is_needed():
    with pytest.raises(UserError, match="needs 114"):
        SpanCorruption.of(DataConfig(targets_length=100))
