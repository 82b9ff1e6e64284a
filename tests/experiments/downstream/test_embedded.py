"""The embedded suite: no text that pre-training reads, no shortcut in the labels, always alike."""

import collections

import pytest

from experiments.data import corpus
from experiments.data.config import DataConfig
from experiments.data.documents import split_of
from experiments.downstream import embedded
from experiments.downstream.embedded import EMBEDDED

SPLITS = ("train", "validation", "test")


# One of them always, all of them among the slow tests: they read the whole corpus.
TASKS = [
    pytest.param(
        task, id=task.name, marks=[] if task.name == "embedded/continuation" else [pytest.mark.slow]
    )
    for task in EMBEDDED
]


@pytest.fixture(scope="module")
def made():
    """(task) → its examples by split."""
    known = {}

    def make(task):
        if task.name not in known:
            known[task.name] = {split: task.make_records(split) for split in SPLITS}
        return known[task.name]

    return make


@pytest.fixture(scope="module")
def trained_on():
    """All that pre-training reads, with single spaces."""
    fraction = DataConfig.validation_fraction
    texts = [text.decode() for _, text in corpus.documents() if split_of(text, fraction) == "train"]
    return "\n".join(" ".join(text.split()) for text in texts)


def shown(task, record):
    """The texts of an example that must be new; code is not shown as it was written."""
    return [" ".join(record[field].split()) for field in task.fields if field != "code"]


def asked(task, record):
    """The text of an example that must be new: what all of its other fields are about."""
    return " ".join(record[task.fields[0]].split())


@pytest.mark.parametrize("task", TASKS)
def test_no_held_out_text_was_trained_on(task, made, trained_on):
    for split in ("validation", "test"):
        for record in made(task)[split]:
            # A shuffled passage is new in any case.
            if task.name != "embedded/shuffled" or record["label"]:
                assert not any(text in trained_on for text in shown(task, record))


@pytest.mark.parametrize("task", TASKS)
def test_splits_share_no_example(task, made):
    texts = {split: {asked(task, record) for record in made(task)[split]} for split in SPLITS}
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]
    assert not texts["validation"] & texts["test"]


@pytest.mark.parametrize("task", TASKS)
def test_sizes_and_balance(task, made):
    for split, least in (("train", 1000), ("validation", 60), ("test", 60)):
        records = made(task)[split]
        assert len(records) >= least
        counts = collections.Counter(record["label"] for record in records)
        assert set(counts) == set(range(len(task.labels)))
        most = 0.75 if len(task.labels) > 2 else 0.6
        assert max(counts.values()) / len(records) < most
        assert all(record[field].strip() for record in records for field in task.fields)


@pytest.mark.slow
def test_shuffled_passages_have_the_words_of_the_intact_ones(made):
    records = made(EMBEDDED[1])["train"]
    lengths = {
        label: sum(len(r["passage"].split()) for r in records if r["label"] == label)
        / sum(r["label"] == label for r in records)
        for label in (0, 1)
    }
    assert lengths[0] == pytest.approx(lengths[1], rel=0.1)


def test_the_same_corpus_gives_the_same_examples(made):
    task = EMBEDDED[2]
    assert task.make_records("validation") == made(task)["validation"]


def test_neither_part_of_a_pair_says_anything_alone(monkeypatch):
    texts = [(str(n), " ".join(f"a{n}.{i} b{n}.{i}" for i in range(5))) for n in range(4)]
    monkeypatch.setattr(embedded, "_documents", lambda split: texts)

    def parts_of(text):
        words = text.split()
        yield from zip(words[::2], words[1::2], strict=True)

    found = list(embedded._pairs("any", "train", parts_of))
    firsts = [(first, label) for first, _, label in found]
    expected = [(f"a{n}.{i}", label) for n in range(4) for i in range(5) for label in (0, 1)]
    assert sorted(firsts) == expected
    for first, second, label in found:
        if label:
            assert second == f"b{first[1:]}"
        else:
            assert second[1] != first[1]
