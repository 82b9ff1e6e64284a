"""Draws are functions of (seed, row); choices and orders are as uniform as they claim."""

import itertools

import numpy as np
import pytest
from scipy import stats

from experiments.data.randomness import MASKS, ORDER, choose_sorted, row_words, window_order

# A test with a fixed seed always gives the same statistic; this only says how surprising it is.
_LEAST_P = 1e-3


def test_a_rows_words_do_not_depend_on_the_rows_beside_it():
    together = row_words(7, MASKS, 100, 10, 13)
    one_by_one = np.concatenate([row_words(7, MASKS, 100 + r, 1, 13) for r in range(10)])
    np.testing.assert_array_equal(together, one_by_one)


def test_rows_seeds_and_streams_differ():
    words = [
        row_words(seed, stream, row, 1, 8)
        for seed, stream, row in itertools.product((0, 1), (MASKS, ORDER), (0, 1))
    ]
    assert len({w.tobytes() for w in words}) == len(words)


def philox4x64(counter: int, key: tuple[int, int]) -> list[int]:
    """Philox-4x64-10 as published (Salmon et al. 2011, section 4.3), for one counter."""
    low = (1 << 64) - 1
    x = [counter, 0, 0, 0]
    k0, k1 = key
    for _ in range(10):
        p0, p1 = x[0] * 0xD2E7470EE14C6C93, x[2] * 0xCA5A826395121157
        x = [(p1 >> 64) ^ x[1] ^ k0, p1 & low, (p0 >> 64) ^ x[3] ^ k1, p0 & low]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & low, (k1 + 0xBB67AE8584CAA73B) & low
    return x


@pytest.mark.parametrize("words_per_row", [6, 8])
def test_words_are_philox_of_seed_and_row(words_per_row):
    """Masks of old runs depend on these bits: a change makes runs incomparable."""
    blocks, row = 2, 5
    expected = [
        word
        for block in range(blocks)
        # NumPy's counter starts at 1.
        for word in philox4x64(row * blocks + block + 1, (3, ORDER))
    ]
    words = row_words(3, ORDER, row, 1, words_per_row)
    assert words[0].tolist() == expected[:words_per_row]


def test_every_subset_is_equally_likely():
    num_items, count, draws = 7, 3, 35_000
    chosen = choose_sorted(row_words(1, MASKS, 0, draws, num_items), count)
    subsets, seen = np.unique(chosen, axis=0, return_counts=True)
    assert subsets.tolist() == [list(s) for s in itertools.combinations(range(num_items), count)]
    assert stats.chisquare(seen).pvalue > _LEAST_P


def test_choose_none_and_all():
    words = row_words(1, MASKS, 0, 4, 5)
    assert choose_sorted(words, 0).shape == (4, 0)
    assert choose_sorted(words, 5).tolist() == [[0, 1, 2, 3, 4]] * 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 10, 97, 100, 568, 1024, 5417])
def test_every_epoch_visits_every_window_once(size):
    order = window_order(11, np.arange(3 * size), size).reshape(3, size)
    for epoch in order:
        assert sorted(epoch) == list(range(size))
    if size > 10:
        assert not (order[0] == order[1]).all()
        assert not (order[0] == window_order(12, np.arange(size), size)).all()


def test_a_slice_of_the_order_is_the_order_of_the_slice():
    whole = window_order(5, np.arange(1000), 333)
    np.testing.assert_array_equal(window_order(5, np.arange(300, 700), 333), whole[300:700])


def test_each_window_is_as_likely_at_each_place():
    size, epochs = 6, 6000
    order = window_order(2, np.arange(size * epochs), size).reshape(epochs, size)
    for place in range(size):
        seen = np.bincount(order[:, place], minlength=size)
        assert stats.chisquare(seen).pvalue > _LEAST_P


def test_neighbours_in_the_order_are_not_neighbours_in_the_corpus():
    size = 20_000
    order = window_order(3, np.arange(size), size)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(np.arange(size), order)[0, 1]) < 0.03


def test_the_order_of_a_huge_corpus_takes_no_memory_of_its_size():
    windows = window_order(0, np.arange(10**12, 10**12 + 8), 3 * 10**11)
    assert len(set(windows.tolist())) == 8 and windows.max() < 3 * 10**11
