"""The embedded corpus: what is in it, that it does not leak, and that TFDS can read it."""

import hashlib

import pytest
import tensorflow_datasets as tfds

from experiments.data import corpus, tfds_builders
from experiments.data.config import DataConfig
from experiments.data.documents import split_of


@pytest.fixture(scope="module")
def documents():
    return list(corpus.documents())


def test_prose_docstrings_and_sources_are_in(documents):
    texts = b"\n".join(text for _, text in documents)
    assert b'The "assert" statement\n' in texts  # a topic
    assert b"\nbuiltins.str.partition\n\nPartition the string into three parts" in texts
    assert b"class JSONDecoder(object):" in texts  # a source
    assert 4e6 < len(texts) < 40e6


def test_tests_and_installed_packages_are_out():
    for path in corpus.source_files():
        assert not {"test", "tests", "idle_test", "site-packages", "encodings"} & set(path.parts)


def test_documents_come_once_and_in_the_order_of_their_hashes(documents):
    digests = [digest for digest, _ in documents]
    assert digests == [hashlib.sha256(text).hexdigest() for _, text in documents]
    assert digests == sorted(set(digests))
    assert documents == list(corpus.documents())


def test_the_fingerprint_changes_with_a_source(monkeypatch, tmp_path):
    before = corpus.fingerprint()
    assert corpus.fingerprint() == before
    files = corpus.source_files()
    monkeypatch.setattr(corpus, "source_files", lambda: files[1:])
    assert corpus.fingerprint() != before


def test_tfds_builder(tmp_path, documents):
    tfds_builders.StandardLibrary(
        data_dir=tmp_path, file_format="array_record"
    ).download_and_prepare()
    # By name, as any other set of TFDS.
    texts = {}
    for split in ("train", "validation"):
        source = tfds.data_source("standard_library", split=split, data_dir=tmp_path)
        texts[split] = [record["text"] for record in source]
        assert all(split_of(text, 0.05) == split for text in texts[split])
    assert not set(texts["train"]) & set(texts["validation"])
    assert sorted(texts["train"] + texts["validation"]) == sorted(text for _, text in documents)
    assert texts["train"] != sorted(texts["train"])  # shuffled


def test_embedded_builder_is_prepared_once(tmp_path):
    cfg = DataConfig(objective="image_classification")
    first = tfds_builders.embedded_builder(cfg, tmp_path)
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    second = tfds_builders.embedded_builder(cfg, tmp_path)
    assert first.info.splits["train"].num_examples == second.info.splits["train"].num_examples
    assert made == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
