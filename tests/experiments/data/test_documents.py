"""The user's files become documents, in little memory, with errors that say where."""

import gzip
import json
import tracemalloc

import pyarrow
import pyarrow.parquet
import pytest

from experiments.data.documents import file_documents, split_of
from models.errors import UserError


def read(path, text_field="text"):
    return list(file_documents(path, text_field, lambda _: None))


def jsonl(texts) -> bytes:
    return b"".join(json.dumps({"text": text, "n": 1}).encode() + b"\n" for text in texts)


def test_txt_keeps_every_character_and_cuts_at_blank_lines(tmp_path):
    path = tmp_path / "a.txt"
    text = "".join(f"Paragraph {k} é {'word ' * (k % 700)}\n\n" for k in range(400))
    path.write_text(text)
    documents = read(path)
    assert b"".join(documents).decode() == text
    assert len(documents) > 50
    assert all(d.endswith(b"\n\n") and len(d.decode()) >= 4096 for d in documents[:-1])


def test_txt_without_blank_lines_is_cut_at_lines_and_words(tmp_path):
    path = tmp_path / "a.txt"
    text = "x" * 100_000 + " " + "word " * 30_000 + "\n" + "line of text\n" * 20_000
    path.write_text(text)
    documents = [d.decode() for d in read(path)]
    assert "".join(documents) == text
    assert max(map(len, documents)) <= 65_536
    assert all(d[-1] in " \n" for d in documents[1:])


def test_txt_does_not_depend_on_where_blocks_are_cut(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("é🙂 " * 60_000 + "\n\n" + "ß\n" * 50_000)
    whole = read(path)
    for block_bytes in (1013, 65_536):
        monkeypatch.setattr("experiments.data.documents._BLOCK_BYTES", block_bytes)
        assert read(path) == whole


def test_txt_that_fills_a_document_exactly_is_cut_as_if_more_were_there(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("word " * 20_000)
    whole = read(path)
    monkeypatch.setattr("experiments.data.documents._BLOCK_BYTES", 65_536)
    assert read(path) == whole


def test_a_byte_order_mark_is_not_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffhello".encode())
    assert read(path) == [b"hello"]


def test_records(tmp_path):
    texts = ["one", "two\nlines", "é🙂", "  \n"]
    (tmp_path / "a.jsonl").write_bytes(jsonl(texts) + b"\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(texts), mtime=0))
    table = pyarrow.table({"text": [*texts, None], "n": range(5)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    expected = [text.encode() for text in texts[:3]]  # blank ones are left out
    for name in ("a.jsonl", "a.jsonl.gz", "a.parquet"):
        assert read(tmp_path / name) == expected, name


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_progress_adds_up_to_the_size_of_the_file(tmp_path, name):
    path = tmp_path / name
    texts = [f"text {k} " * 200 for k in range(3000)]
    if name == "a.parquet":
        pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path)
    else:
        data = "\n".join(texts).encode() if name == "a.txt" else jsonl(texts)
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    reports: list[int] = []
    assert list(file_documents(path, "text", reports.append))
    assert len(reports) > 1 and sum(reports) == path.stat().st_size


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"ab\ncd\n\xff\xfe", r"a.txt: not UTF-8: .* at byte 6, line 3"),
        ("b.txt", b"ok \xc3", r"b.txt: not UTF-8: unexpected end of data at byte 3, line 1"),
        ("a.jsonl", b'{"text": "x"}\n{"txt": 1}\n', r"a.jsonl:2: no text under 'text' \(found: tx"),
        ("b.jsonl", b'{"text": "x"}\n{"text":\n', r"b.jsonl:2: not JSON"),
        ("c.jsonl", b'{"text": 3}\n', r"c.jsonl:1: no text"),
        ("d.jsonl", b"[1]\n", r"d.jsonl:1: no text under 'text' \(found: list\)"),
        ("e.jsonl", b'{"text": "\xff"}\n', r"e.jsonl:1: not UTF-8"),
        ("f.jsonl", b'{"text": "\\ud800"}\n', r"f.jsonl:1: not valid Unicode"),
        (
            "a.jsonl.gz",
            gzip.compress(jsonl(["x"] * 99), mtime=0)[:-20],
            r"a.jsonl.gz: damaged gzip",
        ),
        ("b.jsonl.gz", b"not a gzip file", r"b.jsonl.gz: damaged gzip"),
        ("a.parquet", b"not a parquet file", r"a.parquet: damaged parquet"),
    ],
)
def test_bad_files(tmp_path, name, content, told):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_bad_byte_far_into_a_file_is_placed(tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.data.documents._BLOCK_BYTES", 7)
    path = tmp_path / "a.txt"
    path.write_bytes("é\n".encode() * 100 + b"\xe2\x82" + b"\n")
    with pytest.raises(UserError, match=r"at byte 300, line 101"):
        read(path)


def test_parquet_without_text(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": [1], "content": ["x"]}), path)
    with pytest.raises(UserError, match=r"no text under 'text' \(found: n, content\)"):
        read(path)
    with pytest.raises(UserError, match="no text under 'n'"):
        read(path, "n")
    assert read(path, "content") == [b"x"]


@pytest.mark.parametrize("kind", ["txt", "one_line.txt", "jsonl", "jsonl.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    def peak_bytes(megabytes: int) -> int:
        path = tmp_path / f"{megabytes}.{kind}"
        texts = ["some words of a document " * 40] * 1000  # 1 MB
        data = jsonl(texts)
        if kind == "txt":
            data = "\n\n".join(texts).encode()
        if kind == "one_line.txt":
            data = "".join(texts).encode()
        with gzip.open(path, "wb", 1) if kind.endswith("gz") else path.open("wb") as file:
            for _ in range(megabytes):
                file.write(data)
        tracemalloc.start()
        num_bytes = sum(len(text) for text in file_documents(path, "text", lambda _: None))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert num_bytes > 0.9e6 * megabytes
        return peak

    small, large = peak_bytes(5), peak_bytes(40)
    assert large < small + 1e6 and large < 10e6


def test_parquet_is_read_in_parts(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"{k} some words " * 100 for k in range(2000)]})
    with pyarrow.parquet.ParquetWriter(path, table.schema) as writer:
        for _ in range(40):
            writer.write_table(table)
    before = pyarrow.total_allocated_bytes()
    documents = file_documents(path, "text", lambda _: None)
    held = max(pyarrow.total_allocated_bytes() - before for _ in documents)
    assert held < table.nbytes * 4


def test_the_split_is_a_function_of_the_content():
    documents = [f"document {k}".encode() for k in range(20_000)]
    splits = [split_of(d, 0.05) for d in documents]
    assert 0.045 < splits.count("validation") / len(splits) < 0.055
    assert splits == [split_of(d, 0.05) for d in documents]
    # Raising the share only moves documents into validation.
    wider = [split_of(d, 0.10) for d in documents]
    assert all(w == "validation" for w, s in zip(wider, splits, strict=True) if s == "validation")
