"""Reads measured points from a CSV."""

import csv
import pathlib
from collections.abc import Mapping

import numpy as np

from models.errors import UserError, did_you_mean
from sparsity.law.points import UNSTRUCTURED, Points, check

# Names under which a column is found without being told, first match wins.
COLUMNS = {
    "N": ("nonzero_params", "nonzero", "N", "params"),
    "S": ("sparsity", "S"),
    "D": ("data", "tokens", "images", "examples", "D"),
    "loss": ("val_loss", "loss", "eval_loss", "L"),
    "family": ("family",),
    "pattern": ("pattern",),
    "unit": ("data_unit",),
}
_OPTIONAL = ("family", "pattern", "unit")


def read_csv(path: pathlib.Path, columns: Mapping[str, str]) -> list[Points]:
    """Reads one set of points a family from a CSV with a header, in order of appearance.

    `columns` names columns that are not called as in COLUMNS. Raises UserError for a missing file
    or column, an empty table, and whatever `check` refuses.
    """
    if not path.is_file():
        raise UserError(f"--points={path}: no such file.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = [name for name in reader.fieldnames or () if name]
            rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not a CSV in UTF-8, {error}.") from None
    named = _find_columns(path, header, columns)
    if not rows:
        raise UserError(f"{path}: no points in it, only a header of {len(header)} columns.")
    families: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for line, row in rows:
        name = row[named["family"]] if "family" in named else path.stem
        families.setdefault(name, []).append((line, row))
    return [_family(path, name, named, members) for name, members in families.items()]


def _family(
    path: pathlib.Path,
    name: str,
    named: Mapping[str, str],
    rows: list[tuple[int, dict[str, str]]],
) -> Points:
    def numbers(key: str) -> np.ndarray:
        return np.array([_number(path, line, named[key], row) for line, row in rows])

    def words(key: str, default: str) -> np.ndarray:
        if key not in named:
            return np.full(len(rows), default)
        return np.array([(row[named[key]] or "").strip() or default for _, row in rows])

    pattern = words("pattern", UNSTRUCTURED)
    points = Points(
        name=name,
        data_unit=str(words("unit", "data")[0]),
        sparsity=numbers("S"),
        size=numbers("N"),
        data=numbers("D"),
        loss=numbers("loss"),
        pattern=np.where(pattern == "dense", UNSTRUCTURED, pattern),
        origin=tuple(f"{path} line {line}" for line, _ in rows),
    )
    check(points)
    return points


def _find_columns(
    path: pathlib.Path, header: list[str], columns: Mapping[str, str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, aliases in COLUMNS.items():
        wanted = (columns[key],) if key in columns else aliases
        match = next((name for name in wanted if name in header), None)
        if match is not None:
            found[key] = match
        elif key in columns or key not in _OPTIONAL:
            raise UserError(
                f"{path}: no column {' or '.join(wanted)} for {key}."
                f"{did_you_mean(wanted[0], header)} It has: {', '.join(header) or 'no header'}. "
                f"Name it with --columns {key}=NAME."
            )
    return found


def _number(path: pathlib.Path, line: int, column: str, row: Mapping[str, str | None]) -> float:
    text = (row[column] or "").strip()
    if not text:
        return float("nan")
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{path} line {line}: {column} is {text!r}, not a number.") from None
