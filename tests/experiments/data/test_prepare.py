"""Preparing gives exactly the tokens of the documents, once, and says what is wrong with a source.

The preparing step runs in this process; test_prepare_process.py runs it as users do.
"""

import dataclasses
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from experiments.data import vocabulary
from experiments.data.batches import Batches
from experiments.data.config import DataConfig
from experiments.data.documents import file_documents, split_of
from experiments.data.prepare import prepared_folder
from models.errors import UserError


def expected_windows(documents, prepared, length) -> np.ndarray:
    """Documents' tokens one after the other, each with eos (1) at its end, in rows of `length`."""
    processor = vocabulary.load(prepared.folder / "vocabulary.model")
    tokens = [token for text in documents for token in [*processor.encode(text.decode()), 1]]
    whole = len(tokens) // length * length
    return np.array(tokens[:whole]).reshape(-1, length)


def documents_of(folder, cfg, split):
    for path in sorted(folder.iterdir()):
        for document in file_documents(path, "text", lambda _: None):
            if split_of(document, cfg.validation_fraction) == split:
                yield document


def test_windows_are_the_documents_with_eos_between(small, small_cfg, text_files):
    for split in ("train", "validation"):
        documents = list(documents_of(text_files, small_cfg, split))
        tokens = small.array(split, "tokens")
        np.testing.assert_array_equal(tokens, expected_windows(documents, small, tokens.shape[1]))
        counts = small.facts["counts"][split]
        assert counts["documents"] == len(documents)
        assert counts["bytes"] == sum(map(len, documents))
        assert 0 <= counts["tokens"] - tokens.size < tokens.shape[1]
    train = small.array("train", "tokens")
    np.testing.assert_array_equal(
        small.train_counts, np.bincount(train.reshape(-1), minlength=small.vocab_size)
    )
    assert small.vocab_size == vocabulary.vocab_size(small_cfg) == 612


def test_bytes_per_token_add_up_to_the_corpus(small):
    lost = small.facts["counts"]["train"]["bytes"] - int(
        small.bytes_per_token[small.array("train", "tokens")].astype(int).sum()
    )
    assert 0 <= lost < 10 * small.array("train", "tokens").shape[1]  # the rest that was dropped


def test_batches_of_prepared_text_can_be_read_again(small, small_cfg):
    """A batch's inputs and targets, put together, are text of the corpus."""
    batch = Batches(small, small_cfg, "validation", 4).batch(0, 0)
    processor = vocabulary.load(small.folder / "vocabulary.model")
    first_sentinel = small.vocab_size - 1
    inputs, targets = batch["inputs"][0].tolist(), batch["targets"][0].tolist()
    restored: list[int] = []
    for token in inputs[:-1]:
        if token <= first_sentinel - 100:
            restored.append(token)
            continue
        span = targets[targets.index(token) + 1 :]
        stop = next(k for k, t in enumerate(span) if t > first_sentinel - 100 or t in (0, 1))
        restored += span[:stop]
    window = small.array("validation", "tokens")[0].tolist()
    if 1 not in window:
        assert processor.decode(restored) == processor.decode(window)
    assert [t for t in restored if t != 1] == [t for t in window if t != 1]


def test_prepared_once_and_found_again(small, small_cfg, prepare_here):
    stamp = (small.folder / "prepared.json").stat().st_mtime_ns
    cache_dir = small.folder.parents[1]
    again = prepare_here(small_cfg, cache_dir)
    assert again.folder == small.folder
    assert (again.folder / "prepared.json").stat().st_mtime_ns == stamp


def test_two_caches_hold_the_same_bytes(small, small_cfg, prepare_here, tmp_path):
    again = prepare_here(small_cfg, tmp_path)
    assert again.digest == small.digest
    assert again.folder.name == small.folder.name
    model = (again.folder / "vocabulary.model").read_bytes()
    assert model == (small.folder / "vocabulary.model").read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        {"inputs_length": 70},
        {"vocabulary_size": 600},
        {"validation_fraction": 0.3},
        {"text_field": "content"},
        {"max_train_tokens": 5000},
        {"max_validation_tokens": 5000},
        {"objective": "mlm"},
        {"files": ""},
    ],
)
def test_the_folder_is_named_after_all_that_its_bytes_depend_on(small, small_cfg, tmp_path, change):
    given_vocabulary = {"vocabulary_file": str(small.folder / "vocabulary.model")}
    for base in (small_cfg, dataclasses.replace(small_cfg, **given_vocabulary)):
        changed = dataclasses.replace(base, **change)
        irrelevant = base.vocabulary_file and "vocabulary_size" in change
        same = prepared_folder(changed, tmp_path) == prepared_folder(base, tmp_path)
        assert same == bool(irrelevant)


def test_the_folder_is_named_after_the_vocabulary(small_cfg, tmp_path):
    cfg = dataclasses.replace(small_cfg, vocabulary_file=str(tmp_path / "x.model"))
    folders = set()
    for size in (400, 500):
        model = vocabulary.train(documents_of(Path(small_cfg.files).parent, cfg, "train"), size)
        Path(cfg.vocabulary_file).write_bytes(model)
        folders.add(prepared_folder(cfg, tmp_path))
    assert len(folders) == 2


def test_masks_are_drawn_later_and_need_no_other_folder(small_cfg, tmp_path):
    changed = dataclasses.replace(small_cfg, targets_length=50)
    assert prepared_folder(changed, tmp_path) == prepared_folder(small_cfg, tmp_path)


def test_a_changed_file_is_another_source(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one")
    cfg = DataConfig(files=str(path))
    before = prepared_folder(cfg, tmp_path)
    os.utime(path, ns=(1, 1))
    assert prepared_folder(cfg, tmp_path) != before


def test_other_windows_share_the_vocabulary(small, small_cfg, prepare_here):
    cache_dir = small.folder.parents[1]
    prepare_here(dataclasses.replace(small_cfg, inputs_length=70), cache_dir)
    models = [path for path in (cache_dir / "vocabularies").iterdir() if path.is_dir()]
    assert len(models) == 1


def test_a_users_vocabulary(small, small_cfg, prepare_here, tmp_path):
    model = small.folder / "vocabulary.model"
    cfg = dataclasses.replace(small_cfg, vocabulary_file=str(model), vocabulary_size=300)
    prepared = prepare_here(cfg, tmp_path)
    assert prepared.facts["arrays"] == small.facts["arrays"]


def test_token_limits(small, small_cfg, prepare_here, tmp_path):
    cfg = dataclasses.replace(
        small_cfg,
        max_train_tokens=9000,
        max_validation_tokens=6000,
        vocabulary_file=str(small.folder / "vocabulary.model"),
    )
    prepared = prepare_here(cfg, tmp_path)
    for split, least in (("train", 9000), ("validation", 6000)):
        tokens = prepared.array(split, "tokens")
        np.testing.assert_array_equal(tokens, small.array(split, "tokens")[: len(tokens)])
        assert least <= prepared.facts["counts"][split]["tokens"] < least + 40_000
        assert len(tokens) < len(small.array(split, "tokens"))


def test_forms_of_files_give_the_same_windows(small, small_cfg, text_files, prepare_here, tmp_path):
    texts = [
        document.decode()
        for path in sorted(text_files.iterdir())
        for document in file_documents(path, "text", lambda _: None)
    ]
    records = "".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in texts)
    (tmp_path / "a.jsonl").write_text(records)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(records.encode()))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "a.parquet")
    for suffix in ("jsonl", "jsonl.gz", "parquet"):
        cfg = dataclasses.replace(
            small_cfg,
            files=str(tmp_path / f"*.{suffix}"),
            vocabulary_file=str(small.folder / "vocabulary.model"),
        )
        prepared = prepare_here(cfg, tmp_path / "cache")
        assert prepared.facts == small.facts, suffix


def test_progress(small_cfg, prepare_here, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.data.prepare_worker._SECONDS_BETWEEN_REPORTS", 0.0)
    reports: list[tuple] = []
    prepare_here(small_cfg, tmp_path, lambda *report: reports.append(report))
    phases = list(dict.fromkeys(phase for *_, phase in reports))
    assert phases == ["corpus", "vocabulary", "train windows", "validation windows"]
    for split in ("train", "validation"):
        of_split = [report for report in reports if report[3] == f"{split} windows"]
        assert all(done <= total and unit == "bytes" for done, total, unit, _ in of_split)
        assert of_split[-1][0] == of_split[-1][1]


def small_library(monkeypatch):
    """Lets the embedded corpus be a part of itself."""
    from experiments.data import corpus

    documents = [item for item in corpus.documents() if len(item[1]) < 20_000][:80]
    monkeypatch.setattr(corpus, "documents", lambda: iter(documents))
    return [text for _, text in documents]


def test_embedded_corpus(monkeypatch, prepare_here, tmp_path):
    documents = small_library(monkeypatch)
    cfg = DataConfig(vocabulary_size=512, validation_fraction=0.2)
    prepared = prepare_here(cfg, tmp_path)
    assert sum(c["bytes"] for c in prepared.facts["counts"].values()) == sum(map(len, documents))
    held_out = [text for text in documents if split_of(text, 0.2) == "validation"]
    tokens = prepared.array("validation", "tokens")
    assert tokens.shape[1] == 568
    # TFDS has shuffled the documents, so only their tokens can be compared.
    expected = expected_windows(held_out, prepared, 568)
    assert abs(len(expected) - len(tokens)) <= 1
    difference = np.bincount(expected.reshape(-1), minlength=612) - np.bincount(
        tokens.reshape(-1), minlength=612
    )
    assert np.abs(difference).sum() < 2 * 568


def test_digits(prepare_here, tmp_path):
    from sklearn.datasets import load_digits

    cfg = DataConfig(objective="image_classification", validation_fraction=0.2)
    prepared = prepare_here(cfg, tmp_path)
    theirs = load_digits()
    expected = sorted(
        (image.astype(np.uint8).tobytes(), int(label))
        for image, label in zip(theirs.images, theirs.target, strict=True)
    )
    found = {
        split: [
            (image.tobytes(), int(label))
            for image, label in zip(
                prepared.array(split, "images"), prepared.array(split, "labels"), strict=True
            )
        ]
        for split in ("train", "validation")
    }
    assert sorted(found["train"] + found["validation"]) == expected
    assert not set(found["train"]) & set(found["validation"])
    assert 250 < len(found["validation"]) < 480
    assert prepared.train_counts.tolist() == np.bincount([n for _, n in found["train"]]).tolist()
    batch = Batches(prepared, cfg, "train", 16).batch(0, 0)
    assert batch["images"].shape == (16, 8, 8, 1) and abs(batch["images"]).max() <= 1


def test_no_files(prepare_here, tmp_path):
    with pytest.raises(UserError, match=r"data.files=.*\*\.txt: matches no file"):
        prepare_here(DataConfig(files=str(tmp_path / "*.txt")), tmp_path)
    (tmp_path / "a.csv").touch()
    with pytest.raises(UserError, match=r"cannot read a\.csv; must end in \.txt, \.jsonl"):
        prepare_here(DataConfig(files=str(tmp_path / "*")), tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"inputs_length": 200_000}, "train split has .* tokens, less than one window of 200000"),
        ({"validation_fraction": 1e-9}, "validation split has 0 tokens"),
        ({"vocabulary_size": 60_000}, "vocabulary_size=60000: SentencePiece cannot"),
    ],
)
def test_a_corpus_that_is_too_small(change, told, small_cfg, prepare_here, tmp_path):
    cfg = dataclasses.replace(small_cfg, objective="mlm", **change)
    with pytest.raises(UserError, match=told):
        prepare_here(cfg, tmp_path)
    assert [path.suffix for path in (tmp_path / "prepared").iterdir()] == [".lock"]


def test_a_file_that_turns_bad_is_named(small_cfg, text_files, small, prepare_here, tmp_path):
    """The error passes through TensorFlow's threads and is still the user's."""
    (tmp_path / "a.txt").write_bytes((text_files / "a.txt").read_bytes() + b"\n\xff")
    cfg = dataclasses.replace(
        small_cfg,
        files=str(tmp_path / "*.txt"),
        vocabulary_file=str(small.folder / "vocabulary.model"),
    )
    with pytest.raises(UserError, match=r"a\.txt: not UTF-8: invalid start byte at byte \d+, line"):
        prepare_here(cfg, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache" / "prepared").iterdir()] == [".lock"]
