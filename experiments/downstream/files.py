"""Official files of tasks: tab-separated tables and JSON lines, with errors that name the line."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.errors import UserError

# split -> alternatives, each a set of files that make up the split, the best-known first
SplitFiles = Mapping[str, Sequence[Sequence[str]]]


def find(folder: Path, subfolders: Sequence[str], files: SplitFiles, split: str) -> list[Path]:
    """Returns the files of a split, in `folder` itself or in one of its `subfolders`.

    Raises UserError where none of the alternatives is there.
    """
    folder = folder.expanduser()
    if not folder.is_dir():
        raise UserError(f"data.dir={folder}: no such folder.")
    places = [folder, *(folder / name for name in subfolders)]
    for place in places:
        for names in files[split]:
            if (place / names[0]).is_file():
                return [place / name for name in names if (place / name).is_file()]
    looked = " or ".join(names[0] for names in files[split])
    where = " or ".join(str(place) for place in places)
    raise UserError(f"data.dir={folder}: no {split} split: looked for {looked} in {where}.")


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (file:line, line) of UTF-8 text, without a byte-order mark and blank lines.

    Only line feeds end a line: sentences may hold other characters that Unicode counts as such.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            place = f"{path}:{number}"
            try:
                line = raw.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{place}: not UTF-8: {error.reason} at byte {error.start} of the line."
                ) from None
            if number == 1:
                line = line.removeprefix("\ufeff")
            if line.strip():
                yield place, line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A tab-separated file: quotes are letters like others, and no cell spans lines."""

    # field of a record -> name of its column in the header
    columns: Mapping[str, str]
    # Names of the columns of a file without a header; None: it must have one.
    without_header: tuple[str, ...] | None = None
    # Rows with too few columns or an empty text are left out: the official file has such.
    skips_damaged: bool = False

    def read(self, path: Path) -> Iterator[tuple[str, dict[str, str]]]:
        """Yields (file:line, field -> text). Raises UserError naming file and line."""
        names: tuple[str, ...] | None = None
        empty = True
        for place, line in lines_of(path):
            cells = tuple(line.split("\t"))
            if names is None:
                if set(self.columns.values()) <= set(cells):
                    names = cells
                    continue
                names = self._names_without_header(place, cells)
            empty = False
            record = self._record(place, cells, names)
            if record is not None:
                yield place, record
        if empty:
            raise UserError(f"{path}: has no examples.")

    def _names_without_header(self, place: str, cells: tuple[str, ...]) -> tuple[str, ...]:
        if self.without_header is not None and len(cells) == len(self.without_header):
            return self.without_header
        wanted = ", ".join(self.columns.values())
        also = (
            f", nor {len(self.without_header)} columns without one" if self.without_header else ""
        )
        raise UserError(
            f"{place}: {len(cells)} columns, and no header with {wanted}{also} (tab-separated)."
        )

    def _record(
        self, place: str, cells: tuple[str, ...], names: tuple[str, ...]
    ) -> dict[str, str] | None:
        if len(cells) != len(names):
            if self.skips_damaged:
                return None
            raise UserError(f"{place}: {len(cells)} columns, not {len(names)} (tab-separated).")
        record = {field: cells[names.index(name)] for field, name in self.columns.items()}
        for field, text in record.items():
            if not text.strip():
                if self.skips_damaged:
                    return None
                raise UserError(f"{place}: {self.columns[field]} is empty.")
        return record


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (file:line, object). Raises UserError naming file and line."""
    empty = True
    for place, line in lines_of(path):
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{place}: not JSON: {error}.") from None
        if not isinstance(value, dict):
            raise UserError(f"{place}: not a JSON object.")
        empty = False
        yield place, value
    if empty:
        raise UserError(f"{path}: has no examples.")


def member(value: Any, name: str, kind: type | tuple[type, ...], place: str) -> Any:
    """Returns value[name]. Raises UserError where it is missing, empty or of another type."""
    if not isinstance(value, dict) or name not in value:
        found = ", ".join(value) if isinstance(value, dict) else type(value).__name__
        raise UserError(f"{place}: no {name!r} (found: {found}).")
    inner = value[name]
    if not isinstance(inner, kind):
        raise UserError(f"{place}: {name!r} is {type(inner).__name__}.")
    if isinstance(inner, str) and not inner.strip():
        raise UserError(f"{place}: {name!r} is empty.")
    return inner
