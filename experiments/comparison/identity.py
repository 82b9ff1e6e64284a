"""Digests that tell whether two runs were evaluated on the same examples and tokens."""

import pathlib
from collections.abc import Iterable, Mapping
from hashlib import sha256

import numpy as np

# Values that are hashed of one array; of larger ones evenly spread ones.
_MOST_VALUES = 1 << 16


def evaluation_digest(batches: Iterable[Mapping[str, np.ndarray]]) -> str:
    """SHA-256 over names, shapes and values of validation batches, masks included."""
    digest = sha256()
    for batch in batches:
        for name in sorted(batch):
            array = np.asarray(batch[name])
            digest.update(f"{name} {array.dtype.str} {array.shape};".encode())
            stride = max(1, array.size // _MOST_VALUES)
            digest.update(np.ascontiguousarray(array.reshape(-1)[::stride]).tobytes())
    return digest.hexdigest()


def vocabulary_digest(prepared: pathlib.Path) -> str:
    """SHA-256 of the vocabulary of a folder of prepared data; "none" for images."""
    vocabulary = prepared / "vocabulary.model"
    return sha256(vocabulary.read_bytes()).hexdigest() if vocabulary.exists() else "none"
