"""Evaluation of a task: every held-out example once, whatever the batch size and the padding."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from experiments.data.config import DataConfig
from experiments.data.prepare import prepared_folder
from experiments.data.windows import Prepared
from experiments.downstream.evaluation import TaskEvaluation
from experiments.downstream.registry import TASKS
from tests.experiments.downstream import official

N = 45


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A small SentencePiece model."""
    from experiments.data import vocabulary

    folder = tmp_path_factory.mktemp("vocabulary")
    text = " ".join(official.words("sentence", number) for number in range(200))
    (folder / "v.model").write_bytes(vocabulary.train([text.encode()] * 5, 300))
    return folder / "v.model"


@pytest.fixture(scope="module")
def prepared(vocabulary, tmp_path_factory):
    """(objective) → (configuration, prepared data) of CoLA with N examples a split."""
    from experiments.data import prepare_worker

    folder = tmp_path_factory.mktemp("glue")
    official.write(TASKS["glue/cola"], folder, N)

    def make(objective):
        cfg = DataConfig(
            objective=objective,
            task="glue/cola",
            dir=str(folder),
            vocabulary_file=str(vocabulary),
            inputs_length=48,
            targets_length=16,
        )
        cfg.check()
        cache = folder / objective
        place = prepared_folder(cfg, cache)
        prepare_worker.prepare_here(cfg, cache, place, lambda *_: None)
        return cfg, Prepared.open(place)

    return make


@pytest.mark.parametrize("batch_size", [1, 16, 45, 64])
def test_metrics_do_not_depend_on_the_batch_size(prepared, batch_size):
    cfg, data = prepared("classification")
    draw = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
    labels = np.asarray(data.array("validation", "labels"))
    tokens = np.asarray(data.array("validation", "tokens")).astype(np.int32)
    outputs = {row.tobytes(): output for row, output in zip(tokens, draw, strict=True)}

    def eval_step(state, batch):
        found = np.stack([outputs[row.tobytes()] for row in batch["tokens"]])
        wrong = np.argmax(found, axis=1) != batch["labels"]
        count = batch["weights"].sum()
        return {"loss": (jnp.sum(wrong * batch["weights"]), count)}, found

    found = TaskEvaluation(data, cfg, batch_size)(eval_step, None, None)
    predicted = draw.argmax(axis=1)
    assert found["matthews"] == pytest.approx(
        sklearn.metrics.matthews_corrcoef(labels, predicted), abs=1e-12
    )
    assert found["accuracy"] == pytest.approx(np.mean(labels == predicted))
    assert found["loss"] == pytest.approx(1 - found["accuracy"])


def test_t5_answers_are_read_up_to_their_end(prepared):
    cfg, data = prepared("text_to_text")
    right = np.asarray(data.array("validation", "targets")).astype(np.int32)

    def eval_step(state, batch):
        # What follows the end of an answer is not part of it.
        tokens = np.where(batch["targets"] == 0, 7, batch["targets"])
        return {"loss": (0.0, 1.0)}, tokens

    evaluation = TaskEvaluation(data, cfg, 16)
    assert evaluation(eval_step, None, None)["accuracy"] == 1.0
    # Neither other words nor sentinels, which are no text, are an answer.
    for token in (5, data.vocab_size - 1):
        answers = np.full_like(right[:16], token)
        found = evaluation(lambda state, batch, answers=answers: ({}, answers), None, None)
        assert found["accuracy"] == 0.0


def test_every_field_is_in_the_tokens(prepared, vocabulary):
    from experiments.data.vocabulary import load

    processor = load(vocabulary)
    for objective, name in (("classification", "tokens"), ("text_to_text", "inputs")):
        _, data = prepared(objective)
        tokens = np.asarray(data.array("train", name)[3]).tolist()
        pieces = [t for t in tokens if 2 < t < processor.get_piece_size()]
        assert official.words("sentence", 3) in processor.decode(pieces)
    _, data = prepared("classification")
    first = np.asarray(data.array("train", "tokens"))[:, 0]
    assert (first == data.vocab_size - 2).all()


def test_majority_and_words_are_beside(prepared):
    _, data = prepared("classification")
    found = data.facts["baselines"]["validation"]
    assert found["majority"]["matthews"] == 0.0
    assert set(found["bag_of_words"]) == {"matthews", "accuracy"}


def test_other_vocabulary_other_folder(prepared, tmp_path):
    cfg, _ = prepared("classification")
    longer = dataclasses.replace(cfg, inputs_length=64)
    assert prepared_folder(longer, tmp_path) != prepared_folder(cfg, tmp_path)


def test_word_pieces_of_berts_own_vocabulary(tmp_path):
    """[CLS], [SEP] and pieces by the longest match, as in Devlin et al.'s tokenizer."""
    import string

    from experiments.data import prepare_worker

    signs = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "sentence"]
    pieces += [*signs, *(f"##{sign}" for sign in signs)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n")
    official.write(TASKS["glue/rte"], tmp_path, 6)
    cfg = DataConfig(
        objective="classification",
        task="glue/rte",
        dir=str(tmp_path),
        vocabulary_file=str(tmp_path / "vocab.txt"),
        inputs_length=64,
    )
    cfg.check()
    place = prepared_folder(cfg, tmp_path / "cache")
    prepare_worker.prepare_here(cfg, tmp_path / "cache", place, lambda *_: None)
    data = Prepared.open(place)
    assert data.vocab_size == len(pieces)
    # sentence1w0n2 sentence1w1n2 sentence1w2n2 [SEP] sentence2w0n2 …
    expected = ["[CLS]"]
    for field in (1, 2):
        for word in range(3):
            expected += ["sentence", f"##{field}", "##w", f"##{word}", "##n", "##2"]
        expected.append("[SEP]")
    tokens = np.asarray(data.array("train", "tokens")[2])
    assert [pieces[token] for token in tokens if token] == expected
    assert np.asarray(data.array("train", "types")[2]).tolist() == (
        [0] * 20 + [1] * 19 + [0] * (64 - 39)
    )
