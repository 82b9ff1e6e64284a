"""SentencePiece vocabularies: trained once on a sample of the training split, or the user's own."""

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import sentencepiece

from experiments.data.config import NUM_SENTINELS, DataConfig
from models.errors import UserError

PAD, EOS, UNKNOWN = 0, 1, 2
# Enough to settle 4,096 pieces, and quick to count on one core.
SAMPLE_BYTES = 12_000_000
# SentencePiece skips longer sentences, by its own default.
_MOST_SENTENCE_BYTES = 4192


def vocab_size(cfg: DataConfig) -> int:
    """Returns the ids in use, sentinels included; the sentinels are the top 100."""
    if is_word_piece(cfg.vocabulary_file):
        return len(read_word_pieces(Path(cfg.vocabulary_file)))
    if cfg.vocabulary_file:
        return load(Path(cfg.vocabulary_file)).get_piece_size() + NUM_SENTINELS
    return cfg.vocabulary_size + NUM_SENTINELS


def is_word_piece(file: str) -> bool:
    """Says whether this is the vocab.txt of a BERT of Google's or Hugging Face's."""
    return file.endswith(".txt")


def read_word_pieces(path: Path) -> dict[str, int]:
    """Returns piece -> id of a vocab.txt. Raises UserError if it is none or unfit for BERT."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"data.vocabulary_file={path}: cannot be read ({error}).") from None
    pieces = {line.rstrip("\r"): number for number, line in enumerate(lines)}
    for needed in ("[CLS]", "[SEP]", "[UNK]"):
        if needed not in pieces:
            raise UserError(f"data.vocabulary_file={path}: has no {needed}; not BERT's vocab.txt.")
    if pieces.get("[PAD]") != PAD:
        raise UserError(f"data.vocabulary_file={path}: [PAD] must be its first line.")
    return pieces


def load(path: Path) -> sentencepiece.SentencePieceProcessor:
    """Returns the processor of a .model file. Raises UserError if it is none or unfit for T5."""
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=path.read_bytes())
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a SentencePiece model"
        raise UserError(f"data.vocabulary_file={path}: {reason}.") from None
    ids = (processor.pad_id(), processor.eos_id(), processor.unk_id())
    if ids != (PAD, EOS, UNKNOWN):
        raise UserError(
            f"data.vocabulary_file={path}: has pad, eos, unk ids {ids}; must be 0, 1, 2, as T5's."
        )
    return processor


def train(documents: Iterable[bytes], size: int) -> bytes:
    """Returns the model of a byte-pair vocabulary of `size` pieces that spells any text exactly.

    Nothing is normalised away, runs of spaces and line breaks are pieces like others, and unseen
    characters become bytes. Raises UserError if the text does not yield so many pieces.
    """
    sentences = list(_sentences(documents))  # here, so that SentencePiece hides no error of theirs
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNKNOWN,
            bos_id=-1,
            byte_fallback=True,
            character_coverage=0.9995,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            allow_whitespace_only_pieces=True,
            split_digits=True,
            user_defined_symbols=["\n"],
            num_threads=1,  # is written into the model, and more are no faster
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = re.sub(r"\s+", " ", str(error).rpartition("] ")[2] or str(error))
        raise UserError(
            f"data.vocabulary_size={size}: SentencePiece cannot train it on this corpus: {reason}"
        ) from None
    return model.getvalue()


def _sentences(documents: Iterable[bytes]) -> Iterator[str]:
    """Yields the lines of the first SAMPLE_BYTES, too long ones in parts."""
    taken = 0
    for document in documents:
        for line in document.decode().split("\n"):
            part_chars = _MOST_SENTENCE_BYTES // 4
            for start in range(0, len(line), part_chars):
                yield line[start : start + part_chars]
        taken += len(document)
        if taken >= SAMPLE_BYTES:
            return


def bytes_per_token(processor: sentencepiece.SentencePieceProcessor) -> np.ndarray:
    """Returns uint16 (vocab_size,): UTF-8 bytes that a token stands for; 0 for eos and sentinels.

    Exact for the vocabularies that are trained here, whose pieces add up to the text.
    """
    size = processor.get_piece_size()
    counts = np.zeros(size + NUM_SENTINELS, np.uint16)
    for token in range(size):
        if processor.is_byte(token):
            counts[token] = 1
        elif not processor.is_control(token) and not processor.is_unknown(token):
            counts[token] = len(processor.id_to_piece(token).replace("▁", " ").encode())
    return counts
