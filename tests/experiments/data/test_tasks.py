"""The SeqIO task says what a document becomes and how it is scored."""

import math

import pytest

from experiments.data.tasks import bits_per_byte, make_task, text_source


def test_the_task_reads_tokenises_and_ends_a_document(small, small_cfg, tmp_path):
    text = text_source(small_cfg, tmp_path)
    task = make_task(text, small.folder / "vocabulary.model")
    assert set(task.output_features) == {"targets"}
    example = next(iter(task.get_dataset(None, "train", shuffle=False).as_numpy_iterator()))
    vocabulary = task.output_features["targets"].vocabulary
    assert vocabulary.vocab_size == small.vocab_size
    assert example["targets"][-1] == vocabulary.eos_id == 1
    assert (
        vocabulary.decode(example["targets"][:-1].tolist()).encode()
        == (example["targets_pretokenized"])
    )
    window = small.array("train", "tokens")[0]
    assert window.tolist() == example["targets"][: len(window)].tolist()


def test_the_order_of_documents_is_fixed(small, small_cfg, tmp_path):
    task = make_task(text_source(small_cfg, tmp_path), small.folder / "vocabulary.model")

    def documents():
        dataset = task.get_dataset(None, "validation", shuffle=False)
        return [example["targets_pretokenized"] for example in dataset.as_numpy_iterator()]

    assert documents() == documents()


def test_bits_per_byte_of_a_uniform_model_over_bytes():
    texts = ["abc", "é🙂"]
    scores = [len(text.encode()) * math.log(1 / 256) for text in texts]
    assert bits_per_byte(texts, scores)["bits_per_byte"] == pytest.approx(8.0, abs=1e-12)


def test_the_metric_belongs_to_the_task(small, small_cfg, tmp_path):
    task = make_task(text_source(small_cfg, tmp_path), small.folder / "vocabulary.model")
    assert task.score_metric_fns == [bits_per_byte]
