"""Finds and opens safetensors files; nothing of a tensor is read before it is asked for."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from models.errors import UserError

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"


class Tensor(NamedTuple):
    """One tensor of an open file."""

    file: Path
    name: str
    shape: tuple[int, ...]
    # as safetensors writes it: F32, BF16, ...
    dtype: str
    opened: Any

    def read(self) -> np.ndarray:
        """Returns its values; the array is a copy of its own."""
        return self.opened.get_tensor(self.name)


@contextmanager
def open_tensors(path: Path) -> Iterator[dict[str, Tensor]]:
    """Opens a file, or all files of a folder, and gives name -> tensor.

    Raises UserError for a file that is missing or damaged, and for an index that disagrees with
    the files that it names.
    """
    if not path.exists():
        raise UserError(f"{path}: no such file or folder.")
    index: dict[str, str] | None = None
    if path.is_file():
        files = [path]
    elif (path / WEIGHTS).exists():
        files = [path / WEIGHTS]
    elif (path / INDEX).exists():
        index = read_json(path / INDEX).get("weight_map")
        if not isinstance(index, dict):
            raise UserError(f"{path / INDEX}: has no weight_map.")
        files = [path / name for name in sorted(set(index.values()))]
    else:
        raise UserError(f"{path}: holds neither {WEIGHTS} nor {INDEX}.")
    with ExitStack() as stack:
        tensors: dict[str, Tensor] = {}
        for file in files:
            opened = _open(file, stack)
            for name in opened.keys():  # noqa: SIM118 (it is not a dict)
                if index is not None and index.get(name) != file.name:
                    raise UserError(f"{file}: holds {name}, which {INDEX} does not say.")
                part = opened.get_slice(name)
                shape = tuple(part.get_shape())
                tensors[name] = Tensor(file, name, shape, part.get_dtype(), opened)
        if lost := sorted((index or {}).keys() - tensors):
            raise UserError(f"{path / INDEX}: {lost[0]} is in none of its files.")
        yield tensors


def read_json(file: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises UserError if that is not what the file holds."""
    try:
        value = json.loads(file.read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error}).") from error
    if not isinstance(value, dict):
        raise UserError(f"{file}: must hold a JSON object.")
    return value


def _open(file: Path, stack: ExitStack) -> Any:
    try:
        return stack.enter_context(safe_open(file, framework="numpy"))
    except FileNotFoundError:
        raise UserError(f"{file}: no such file.") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: damaged, or not a safetensors file ({error}).") from error
