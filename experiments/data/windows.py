"""Fixed-length token windows on disk: written once, in order; read at random. NumPy only."""

import dataclasses
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import UserError

# Written into every folder and into its key; raise it when the files change their meaning.
FORMAT = 1
_FACTS = "prepared.json"


class WindowWriter:
    """Cuts a stream of tokens into windows and appends them to a file; the last rest is dropped."""

    def __init__(self, path: Path, window_length: int, vocab_size: int) -> None:
        self._window_length = window_length
        self._dtype = np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")
        self._file = path.open("wb")
        self._digest = sha256()
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0
        self.num_windows = 0
        self.token_counts = np.zeros(vocab_size, np.int64)

    def add(self, tokens: np.ndarray) -> None:
        """Appends the tokens of one document."""
        self._waiting.append(tokens)
        self._num_waiting += len(tokens)
        if self._num_waiting >= max(1 << 18, self._window_length):
            self._write()

    def _write(self) -> None:
        tokens = np.concatenate(self._waiting) if self._waiting else np.zeros(0, np.int32)
        whole = len(tokens) // self._window_length * self._window_length
        data = tokens[:whole].astype(self._dtype).tobytes()
        self._file.write(data)
        self._digest.update(data)
        self.num_windows += whole // self._window_length
        self.token_counts += np.bincount(tokens[:whole], minlength=len(self.token_counts))
        self._waiting = [tokens[whole:]]
        self._num_waiting = len(tokens) - whole

    def close(self) -> dict[str, Any]:
        """Writes what is left and returns what a reader must know of the file."""
        self._write()
        self._file.close()
        shape = (self.num_windows, self._window_length)
        return _about(self._dtype, shape, self._digest.hexdigest())


def write_array(path: Path, array: np.ndarray) -> dict[str, Any]:
    """Writes a whole array and returns what a reader must know of the file."""
    data = array.tobytes()
    path.write_bytes(data)
    return _about(array.dtype, array.shape, sha256(data).hexdigest())


def _about(dtype: np.dtype, shape: tuple[int, ...], digest: str) -> dict[str, Any]:
    return {"dtype": dtype.str, "shape": list(shape), "sha256": digest}


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Completes a folder of prepared data with what `Prepared` reads."""
    (folder / _FACTS).write_text(json.dumps(facts, indent=1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A folder of prepared data, open for reading at random."""

    # The folder; its name is the key of what it was made from.
    folder: Path
    # What is in prepared.json.
    facts: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> "Prepared":
        """Opens a folder that was written whole. Raises UserError if it is not what it was."""
        try:
            facts = json.loads((folder / _FACTS).read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: damaged ({error}). Delete it and prepare again.") from None
        prepared = cls(folder=folder, facts=facts)
        for name in facts["arrays"]:
            prepared.array(*name.split("_", 1))
        return prepared

    def array(self, split: str, name: str) -> np.ndarray:
        """Returns a read-only memory map: `tokens` (windows, length), or `images`, `labels`."""
        about = self.facts["arrays"][f"{split}_{name}"]
        path = self.folder / f"{split}_{name}.bin"
        shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
        expected = int(np.prod(shape)) * dtype.itemsize
        size = path.stat().st_size if path.exists() else 0
        if size != expected:
            raise UserError(
                f"{path}: damaged ({size} bytes, not {expected}). Delete {self.folder} and prepare"
                " again."
            )
        return np.memmap(path, dtype, mode="r", shape=shape)

    @property
    def vocab_size(self) -> int:
        """Ids in use, sentinels included; for images the number of classes."""
        return self.facts["vocab_size"]

    @property
    def train_counts(self) -> np.ndarray:
        """Occurrences (vocab_size,) of each token, or label, in the training split."""
        return self.array("train", "counts")

    @property
    def bytes_per_token(self) -> np.ndarray:
        """UTF-8 bytes (vocab_size,) that each token stands for; text only."""
        return self.array("vocabulary", "bytes")

    @property
    def digest(self) -> str:
        """Digest of every byte that is trained and validated on: equal digests, equal data.

        Of what is read where it is, it covers name, version and sizes, as nothing reads it whole.
        """
        facts = self.facts["arrays"] | self.facts.get("read_in_place", {})
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
