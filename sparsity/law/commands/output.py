"""Where results go: a folder of pictures and tables, or JSON for machines."""

import argparse
import csv
import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from models.errors import UserError


def add_out_argument(parser: argparse.ArgumentParser, content: str) -> None:
    """Adds --out, the folder for files."""
    parser.add_argument("--out", type=pathlib.Path, help=f"folder for {content}")


def new_folder(path: pathlib.Path) -> pathlib.Path:
    """Makes the folder where it is missing; raises UserError where that cannot be."""
    if path.exists() and not path.is_dir():
        raise UserError(f"--out={path}: a file of that name exists; give a folder.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out={path}: cannot be made ({error.strerror}).") from None
    return path


def write_csv(path: pathlib.Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table with full precision."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def write_json(path: pathlib.Path, result: dict) -> None:
    """Writes a command's result as JSON."""
    path.write_text(to_json(result) + "\n", encoding="utf-8")


def to_json(result: dict) -> str:
    """Returns a command's result as strict JSON: infinities as "inf", not-a-number as null."""
    return json.dumps(_plain(result), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
