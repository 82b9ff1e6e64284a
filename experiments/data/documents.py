"""Documents out of the user's files, one at a time, so that memory does not grow with them."""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from models.errors import UserError

SUFFIXES = (".txt", ".jsonl", ".jsonl.gz", ".parquet")
# A .txt file says nothing of where its documents end, so it is cut at the first blank line after
# so many characters, and where there is none, at so many.
_TXT_LEAST_CHARS, _TXT_MOST_CHARS = 4096, 65536
_BLOCK_BYTES = 1 << 20
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")

# Called with the number of bytes of the files that were read since the last call.
Report = Callable[[int], None]


def split_of(document: bytes, validation_fraction: float) -> str:
    """Returns `train` or `validation`, by a hash of the content: equal documents never part."""
    number = int.from_bytes(blake2b(document, digest_size=8).digest())
    return "validation" if number < validation_fraction * 2**64 else "train"


def file_documents(path: Path, text_field: str, report: Report) -> Iterator[bytes]:
    """Yields the documents of one file as UTF-8, blank ones left out.

    Raises UserError naming the file and the place for what cannot be read.
    """
    if path.name.endswith(".txt"):
        documents = _txt_documents(path, report)
    elif path.name.endswith(".parquet"):
        documents = _parquet_documents(path, text_field, report)
    else:
        documents = _jsonl_documents(path, text_field, report)
    for document in documents:
        if not document.isspace() and document:
            yield document


def _txt_documents(path: Path, report: Report) -> Iterator[bytes]:
    buffer = ""
    for text in _decoded_blocks(path, report):
        buffer += text
        start = 0
        while len(buffer) - start > _TXT_MOST_CHARS:
            end = _document_end(buffer, start)
            yield buffer[start:end].encode()
            start = end
        buffer = buffer[start:]
    while buffer:
        end = _document_end(buffer, 0)
        yield buffer[:end].encode()
        buffer = buffer[end:]


def _document_end(text: str, start: int) -> int:
    """Returns where the document that begins at `start` ends: a blank line, a line or a word."""
    most = start + _TXT_MOST_CHARS
    blank = _BLANK_LINE.search(text, start + _TXT_LEAST_CHARS, most)
    if blank:
        return blank.end()
    if len(text) <= most:
        return len(text)
    for separator in ("\n", " "):
        last = text.rfind(separator, start, most)
        if last >= 0:
            return last + 1
    return most


def _decoded_blocks(path: Path, report: Report) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line = 0, 1
    with path.open("rb") as file:
        while True:
            block = file.read(_BLOCK_BYTES)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place = offset - pending + error.start
                line += block[: max(error.start - pending, 0)].count(b"\n")
                raise UserError(
                    f"{path}: not UTF-8: {error.reason} at byte {place}, line {line}."
                    " Convert the file to UTF-8."
                ) from None
            if offset == 0:
                text = text.removeprefix("\ufeff")
            yield text
            if not block:
                return
            offset += len(block)
            line += block.count(b"\n")
            report(len(block))


def _jsonl_documents(path: Path, text_field: str, report: Report) -> Iterator[bytes]:
    with path.open("rb") as raw:
        lines = gzip.GzipFile(fileobj=raw) if path.name.endswith(".gz") else raw
        position = 0
        number = 0
        try:
            for number, line in enumerate(lines, start=1):
                if not line.isspace():
                    yield _json_text(line, text_field, f"{path}:{number}")
                position = _report_position(raw, position, report)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(f"{path}: damaged gzip after line {number}: {error}.") from None


def _report_position(raw: BinaryIO, last: int, report: Report) -> int:
    position = raw.tell()
    if position != last:
        report(position - last)
    return position


def _json_text(line: bytes, text_field: str, place: str) -> bytes:
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: not UTF-8: {error.reason} at byte {error.start} of the line."
        ) from None
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: not JSON: {error}.") from None
    if not isinstance(record, dict) or not isinstance(record.get(text_field), str):
        found = ", ".join(record) if isinstance(record, dict) else type(record).__name__
        raise UserError(
            f"{place}: no text under {text_field!r} (found: {found}). Set data.text_field."
        )
    try:
        return record[text_field].encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: not valid Unicode: {error.reason}.") from None


def _parquet_documents(path: Path, text_field: str, report: Report) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            field = next((f for f in file.schema_arrow if f.name == text_field), None)
            if field is None or not _is_text(field.type):
                raise UserError(
                    f"{path}: no text under {text_field!r} (found: "
                    f"{', '.join(file.schema_arrow.names)}). Set data.text_field."
                )
            num_rows = max(file.metadata.num_rows, 1)
            size, rows, reported = path.stat().st_size, 0, 0
            for batch in file.iter_batches(batch_size=1024, columns=[text_field]):
                for text in batch.column(0):
                    if text.is_valid:
                        yield text.as_py().encode()
                rows += batch.num_rows
                report(size * rows // num_rows - reported)
                reported = size * rows // num_rows
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}: damaged parquet: {error}.") from None


def _is_text(kind: object) -> bool:
    import pyarrow.types as types

    return types.is_string(kind) or types.is_large_string(kind)
