"""The vocabulary spells any text exactly, with T5's special ids and the sentinels on top."""

import io

import numpy as np
import pytest
import sentencepiece

from experiments.data import corpus, vocabulary
from experiments.data.config import DataConfig
from models.errors import UserError

TEXTS = [
    "def f(x):\n        return x  # two  spaces\n\n\tand a tab\r\n",
    " leading and trailing ",
    "naïve café 🙂 日本語 ﬁ ½ \u00a0 e\u0301",
    "1234567890 + 3.14159e-10",
]


@pytest.fixture(scope="module")
def documents():
    return [text for _, text in corpus.documents() if len(text) < 20_000][:120]


@pytest.fixture(scope="module")
def model_file(documents, tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    path.write_bytes(vocabulary.train(documents, 800))
    return path


@pytest.fixture(scope="module")
def processor(model_file):
    return vocabulary.load(model_file)


def test_special_ids_and_size(processor, model_file):
    assert processor.get_piece_size() == 800
    assert [processor.id_to_piece(k) for k in range(3)] == ["<pad>", "</s>", "<unk>"]
    assert processor.bos_id() == -1
    assert vocabulary.vocab_size(DataConfig(vocabulary_size=800)) == 900
    assert vocabulary.vocab_size(DataConfig(vocabulary_file=str(model_file))) == 900


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_spelt_exactly_and_its_bytes_add_up(processor, text):
    ids = processor.encode(text)
    assert processor.decode(ids) == text
    assert 2 not in ids
    sizes = vocabulary.bytes_per_token(processor)
    assert sizes.shape == (900,)
    assert sizes[ids].sum() == len(text.encode())
    assert not sizes[[0, 1, 2]].any() and not sizes[800:].any()


def test_indentation_is_one_piece(processor):
    assert processor.encode("\n        return", out_type=str)[:2] == ["\n", "▁" * 8]


def test_training_is_deterministic(documents, model_file):
    assert vocabulary.train(documents, 800) == model_file.read_bytes()


def test_only_a_sample_is_counted(documents, monkeypatch):
    monkeypatch.setattr(vocabulary, "SAMPLE_BYTES", 50_000)
    taken = []
    vocabulary.train((taken.append(d) or d for d in documents), 500)
    assert 50_000 <= sum(map(len, taken)) < 75_000


def test_seqio_makes_the_same_tokens(model_file, processor, documents):
    import seqio

    theirs = seqio.SentencePieceVocabulary(str(model_file), extra_ids=100)
    assert theirs.vocab_size == 900
    for text in [*TEXTS, documents[0].decode()]:
        tokens = theirs.encode_tf(text).numpy()
        np.testing.assert_array_equal(tokens, processor.encode(text))


def test_too_many_pieces_for_the_corpus():
    with pytest.raises(UserError, match=r"vocabulary_size=4096: SentencePiece cannot .* too high"):
        vocabulary.train([b"a few words only"], 4096)


def test_an_error_in_the_documents_is_not_sentencepieces():
    def documents():
        yield b"fine"
        raise UserError("file:2: not JSON")

    with pytest.raises(UserError, match=r"^file:2: not JSON$"):
        vocabulary.train(documents(), 400)


def test_not_a_model(tmp_path):
    path = tmp_path / "x.model"
    with pytest.raises(UserError, match=r"x\.model: No such file"):
        vocabulary.load(path)
    path.write_text("no model")
    with pytest.raises(UserError, match="not a SentencePiece model"):
        vocabulary.load(path)


def test_a_model_with_other_special_ids(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["some words"] * 9), model_writer=model, vocab_size=12, minloglevel=2
    )
    path = tmp_path / "x.model"
    path.write_bytes(model.getvalue())
    with pytest.raises(UserError, match=r"ids \(-1, 2, 0\); must be 0, 1, 2"):
        vocabulary.load(path)
