"""Texts of a task put together: separators, types, and what is cut where there is too much."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.data.task_examples import join_segments


def test_pair_with_types():
    tokens, types = join_segments([[5, 6], [7, 8, 9]], 10, first=90, separator=1)
    assert tokens.tolist() == [90, 5, 6, 1, 7, 8, 9, 1, 0, 0]
    assert types.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(10, 40))
def test_longest_is_cut_one_token_at_a_time(sizes, length):
    segments = [list(range(100 * (i + 1), 100 * (i + 1) + size)) for i, size in enumerate(sizes)]
    expected = [list(segment) for segment in segments]
    while sum(map(len, expected)) + len(expected) + 1 > length:
        longest = max(range(len(expected)), key=lambda i: len(expected[i]))
        expected[longest].pop()
    tokens, types = join_segments(segments, length, first=90, separator=1)
    whole = [90]
    for segment in expected:
        whole += [*segment, 1]
    kept = sorted(len(segment) for segment in expected)
    cuts = np.flatnonzero(tokens == 1)
    found = sorted(np.diff([0, *cuts]) - 1)
    assert len(tokens) == len(types) == length
    # Of segments of one length any may be the one that is cut.
    assert found == kept
    assert np.count_nonzero(tokens) == len(whole)
    for segment in segments:
        inside = [t for t in tokens if segment and segment[0] <= t < segment[0] + 100]
        assert inside == segment[: len(inside)]
