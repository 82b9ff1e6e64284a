"""SeqIO tasks: source, preprocessing, vocabulary and metric of a text corpus.

Imports TensorFlow, so only the preparing step imports it.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import seqio
import tensorflow as tf
import tensorflow_datasets as tfds

from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.documents import Report, file_documents, split_of
from experiments.data.sources import check_splits, matched_files, prepared_tfds
from experiments.data.tfds_builders import embedded_builder
from experiments.data.vocabulary import SAMPLE_BYTES
from models.errors import UserError

# Documents that pass between Python and TensorFlow at once: one by one, the passing takes longer
# than the tokenising.
HANDFUL = 64


@dataclasses.dataclass(kw_only=True)
class TextSource:
    """A SeqIO source of documents, with what SeqIO has no place for: progress and user errors."""

    # Records with a text under `text_field`.
    source: seqio.DataSource
    # Name of that text.
    text_field: str
    # The source's own names of `train` and `validation`.
    splits: dict[str, str]
    # What progress is counted in, `bytes` or `documents`.
    unit: str
    # Units of each split.
    totals: dict[str, int]
    # Bytes of the files that were read.
    bytes_read: int = 0
    # What stopped the reading; TensorFlow, which passes it on, keeps its text only.
    user_error: UserError | None = None


def text_source(cfg: DataConfig, cache_dir: Path) -> TextSource:
    """Returns the source that `cfg` names. Raises UserError if it is not there."""
    if cfg.source == "files":
        return _files_source(cfg)
    if cfg.source == "embedded":
        builder = embedded_builder(cfg, cache_dir)
        return _tfds_source(builder, "text", {"train": "train", "validation": "validation"})
    builder = prepared_tfds(cfg)
    features = dict(builder.info.features.items())
    if not isinstance(features.get(cfg.text_field), tfds.features.Text):
        raise UserError(
            f"data.text_field={cfg.text_field}: no text of {cfg.tfds_name} (has:"
            f" {', '.join(features)})."
        )
    return _tfds_source(builder, cfg.text_field, check_splits(cfg, builder))


def _tfds_source(
    builder: tfds.core.DatasetBuilder, text_field: str, splits: dict[str, str]
) -> TextSource:
    def dataset(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        del shuffle_files, seed  # the order of a corpus is fixed
        if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
            # TFDS has no tf.data reader for this format.
            records = builder.as_data_source(split)
            return _dataset(text_field, lambda: (record[text_field] for record in records))
        return builder.as_dataset(split, shuffle_files=False)

    return TextSource(
        source=seqio.FunctionDataSource(dataset, splits=tuple(splits.values())),
        text_field=text_field,
        splits=splits,
        unit="documents",
        totals={name: builder.info.splits[split].num_examples for name, split in splits.items()},
    )


def _files_source(cfg: DataConfig) -> TextSource:
    paths = matched_files(cfg.files)

    def dataset(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        del shuffle_files, seed  # the order of a corpus is fixed
        return _dataset(cfg.text_field, lambda: documents(split))

    def documents(split: str) -> Iterator[bytes]:
        try:
            yield from split_documents(cfg, paths, split, report)
        except UserError as error:
            text.user_error = error
            raise

    def report(num_bytes: int) -> None:
        text.bytes_read += num_bytes

    size = sum(path.stat().st_size for path in paths)
    text = TextSource(
        source=seqio.FunctionDataSource(dataset, splits=("train", "validation")),
        text_field=cfg.text_field,
        splits={"train": "train", "validation": "validation"},
        unit="bytes",
        totals={"train": size, "validation": size},
    )
    return text


def _dataset(text_field: str, documents: Callable[[], Iterator[bytes]]) -> tf.data.Dataset:
    """Returns records that hold the documents under `text_field`, made as they are asked for."""

    def handfuls() -> Iterator[dict[str, list[bytes]]]:
        rest = documents()
        while handful := list(itertools.islice(rest, HANDFUL)):
            yield {text_field: handful}

    signature = {text_field: tf.TensorSpec((None,), tf.string)}
    return tf.data.Dataset.from_generator(handfuls, output_signature=signature).unbatch()


def split_documents(
    cfg: DataConfig, paths: Sequence[Path], split: str, report: Report
) -> Iterator[bytes]:
    """Yields the documents of the user's files that belong to a split."""
    for path in paths:
        for document in file_documents(path, cfg.text_field, report):
            if split_of(document, cfg.validation_fraction) == split:
                yield document


def vocabulary_sample(cfg: DataConfig, text: TextSource) -> Iterator[bytes]:
    """Yields training documents for the vocabulary: of each file its beginning, or the set's."""
    if cfg.source != "files":
        dataset = text.source.get_dataset(text.splits["train"], shuffle=False)
        yield from (record[text.text_field] for record in dataset.as_numpy_iterator())
        return
    paths = matched_files(cfg.files)
    most_files = 200
    paths = paths[:: math.ceil(len(paths) / most_files)]
    for path in paths:
        taken = 0
        for document in split_documents(cfg, [path], "train", lambda _: None):
            yield document
            taken += len(document)
            if taken >= SAMPLE_BYTES / len(paths):
                break


def make_task(text: TextSource, model_file: Path) -> seqio.Task:
    """Returns the task: a document's tokens, with eos after them, scored in bits per byte."""
    vocabulary = seqio.SentencePieceVocabulary(str(model_file), extra_ids=NUM_SENTINELS)
    return seqio.Task(
        "kpd_text",
        source=text.source,
        preprocessors=[
            functools.partial(seqio.preprocessors.rekey, key_map={"targets": text.text_field}),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos,
        ],
        output_features={"targets": seqio.Feature(vocabulary, add_eos=True)},
        metric_fns=[bits_per_byte],
    )


def bits_per_byte(targets: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Returns −Σ log p / (ln 2 · Σ UTF-8 bytes) of texts whose log-likelihoods are `scores`."""
    num_bytes = sum(len(text.encode()) for text in targets)
    return {"bits_per_byte": -sum(scores) / (math.log(2) * num_bytes)}
