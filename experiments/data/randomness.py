"""What is drawn for row r of the endless stream of examples, as a function of (seed, r).

A row's draws depend neither on the batch size nor on the host that makes it. NumPy only.
"""

import numpy as np

# Streams of one seed that must not share their numbers.
MASKS, ORDER, VALIDATION_MASKS, WINDOW_MASKS = 0, 1, 2, 3
_FEISTEL_ROUNDS = 8
_INDEX_BITS = np.uint64(20)


def row_words(
    seed: int, stream: int, first_row: int, num_rows: int, words_per_row: int
) -> np.ndarray:
    """Returns uint64 (num_rows, words_per_row) of random words, the same for a row in any batch.

    Philox is counter based (Salmon et al. 2011), so that row r starts at counter r × blocks.
    """
    blocks = -(-words_per_row // 4)
    philox = np.random.Philox(key=np.array([seed, stream], np.uint64))
    philox.advance(first_row * blocks)
    words = philox.random_raw(num_rows * blocks * 4)
    return words.reshape(num_rows, blocks * 4)[:, :words_per_row]


def choose_sorted(words: np.ndarray, count: int) -> np.ndarray:
    """Returns int64 (rows, count): `count` of the n indices of each row of `words` (rows, n).

    Every subset is equally likely: the `count` smallest of n random keys. The index in the low
    bits makes the keys distinct, so that the choice is the same on every processor.
    """
    num_items = words.shape[1]
    if num_items >> int(_INDEX_BITS):
        raise ValueError(f"cannot choose among {num_items} items: {1 << 20} at most")
    if count == 0:
        return np.zeros((len(words), 0), np.int64)
    keys = (words >> _INDEX_BITS << _INDEX_BITS) | np.arange(num_items, dtype=np.uint64)[None]
    keys.partition(count - 1, axis=1)
    low_bits = (np.uint64(1) << _INDEX_BITS) - np.uint64(1)
    return np.sort(keys[:, :count] & low_bits, axis=1).astype(np.int64)


def window_order(seed: int, rows: np.ndarray, num_windows: int) -> np.ndarray:
    """Returns the window of each row: every epoch is another permutation of all windows.

    A Feistel network over Z_a × Z_b with a·b ≥ num_windows, walked until it lands on a window
    (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"): memory does not grow.
    """
    epochs, positions = np.divmod(rows, num_windows)
    windows = np.empty_like(positions)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        windows[here] = _permute(seed, int(epoch), positions[here], num_windows)
    return windows


def _permute(seed: int, epoch: int, positions: np.ndarray, size: int) -> np.ndarray:
    """Returns π(positions) for the permutation π of range(size) of this (seed, epoch)."""
    sides = _sides(size)
    round_keys = row_words(seed, ORDER, epoch, 1, _FEISTEL_ROUNDS)[0]
    values = positions.astype(np.uint64)
    outside = np.ones(len(values), bool)
    while outside.any():
        values[outside] = _feistel(values[outside], sides, round_keys)
        outside = values >= size
    return values.astype(np.int64)


def _sides(size: int) -> tuple[int, int]:
    """Returns (a, b), both at least 2, with a·b ≥ size and as little above it as a square can."""
    a = max(2, int(np.ceil(np.sqrt(size))))
    return a, max(2, -(-size // a))


def _feistel(values: np.ndarray, sides: tuple[int, int], round_keys: np.ndarray) -> np.ndarray:
    """Returns a permutation of range(a·b) applied to `values`, one round for each key."""
    a, b = sides
    left, right = values // np.uint64(b), values % np.uint64(b)
    for number, key in enumerate(round_keys):
        if number % 2 == 0:
            left = (left + _mix(right, key)) % np.uint64(a)
        else:
            right = (right + _mix(left, key)) % np.uint64(b)
    return left * np.uint64(b) + right


def _mix(values: np.ndarray, key: np.uint64) -> np.ndarray:
    """Returns 32 well-mixed bits of each value (SplitMix64's finaliser, Steele et al. 2014)."""
    z = values * np.uint64(0x9E3779B97F4A7C15) + key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(32)
