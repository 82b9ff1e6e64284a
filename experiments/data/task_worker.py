"""Prepares a downstream task: runs its SeqIO task once and writes its examples.

Imports TensorFlow, so only the preparing process imports it.
"""

import functools
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import seqio
import tensorflow as tf

from experiments.data import vocabulary
from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.prepare import Progress
from experiments.data.task_examples import join_segments
from experiments.data.tasks import HANDFUL
from experiments.data.windows import write_array, write_facts
from experiments.downstream import baselines, sources
from experiments.downstream.metrics import Predicted, evaluate
from experiments.downstream.registry import find_task
from experiments.downstream.task import Row, Task
from models.errors import UserError

# Rows of training that baselines are made from.
_BASELINE_ROWS = 50_000
_SECONDS_BETWEEN_REPORTS = 0.2


class WordPieces(seqio.BertWordPieceVocabulary):
    """BERT's vocabulary; SeqIO's own pads every word to the pieces of the longest one."""

    def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(self.tokenizer.tokenize(s).flat_values, [None])


class TaskVocabulary:
    """The vocabulary of the model: SentencePiece, or BERT's word pieces."""

    def __init__(self, path: Path):
        if vocabulary.is_word_piece(str(path)):
            pieces = vocabulary.read_word_pieces(path)
            self.seqio = WordPieces(
                str(path),
                lower_case=_is_lower_cased(path),
                start_of_sequence_id=pieces["[CLS]"],
                end_of_sequence_id=pieces["[SEP]"],
            )
            self.size, self.first, self.separator = len(pieces), pieces["[CLS]"], pieces["[SEP]"]
        else:
            self.seqio = seqio.SentencePieceVocabulary(str(path), extra_ids=NUM_SENTINELS)
            self.size = vocabulary.load(path).get_piece_size() + NUM_SENTINELS
            # The last id is the mask of pre-training; the one before it is not used there.
            self.first, self.separator = self.size - 2, vocabulary.EOS


def _is_lower_cased(path: Path) -> bool:
    """What Hugging Face's tokenizer_config.json beside it says; BERT's own default is yes."""
    settings = path.with_name("tokenizer_config.json")
    return not settings.exists() or json.loads(settings.read_text()).get("do_lower_case", True)


def make_task(task: Task, rows: Callable[[str], Iterator[Row]], words: TaskVocabulary, reads: str):
    """Returns the SeqIO task over `rows`: tokens of each segment, or of inputs and targets."""
    names: tuple[str, ...] = ("inputs", "targets")
    if reads == "segments":
        names = tuple(f"segment_{number}" for number in range(_num_segments(rows)))

    def handfuls(split: str) -> Iterator[dict[str, list[Any]]]:
        rest = rows(split)
        while handful := list(itertools.islice(rest, HANDFUL)):
            texts = [_texts(row, reads) for row in handful]
            yield {
                **{name: [text[i] for text in texts] for i, name in enumerate(names)},
                "label": [row.label for row in handful],
                "about": [_about(row) for row in handful],
            }

    def dataset(split: str, shuffle_files: bool, seed: int | None = None) -> tf.data.Dataset:
        del shuffle_files, seed  # the order of the examples is fixed
        signature: dict[str, tf.TensorSpec] = {
            **{name: tf.TensorSpec((None,), tf.string) for name in (*names, "about")},
            "label": tf.TensorSpec((None,), tf.float32),
        }
        made = tf.data.Dataset.from_generator(lambda: handfuls(split), output_signature=signature)
        return made.unbatch()

    steps: list[Callable] = [seqio.preprocessors.tokenize, functools.partial(_as_int32, names)]
    if reads == "text":
        steps.append(seqio.preprocessors.append_eos_after_trim)
    return seqio.Task(
        f"kpd_{task.name.replace('/', '_')}",
        source=seqio.FunctionDataSource(dataset, splits=("train", *task.held_out)),
        preprocessors=steps,
        output_features={
            name: seqio.Feature(words.seqio, add_eos=reads == "text", dtype=tf.int32)
            for name in names
        },
        metric_fns=[functools.partial(_score, task)],
    )


def _score(task: Task, targets: Sequence[Row], predictions: Sequence[str]) -> dict[str, float]:
    """Scores answers in words, as SeqIO hands them over."""
    predicted = Predicted(
        labels=np.array([task.label_of(text) for text in predictions], np.float32)
        if task.kind != "text"
        else np.zeros(len(predictions), np.float32),
        scores=np.zeros(len(predictions)),
        texts=predictions,
    )
    return evaluate(task, predicted, baselines.held_of(targets))


def _num_segments(rows: Callable[[str], Iterator[Row]]) -> int:
    first = next(rows("train"), None)
    return len(first.segments) if first else 1


def _texts(row: Row, reads: str) -> tuple[str, ...]:
    return row.segments if reads == "segments" else (row.inputs, row.targets)


def _about(row: Row) -> str:
    return json.dumps([row.group, row.answers, row.candidate])


def _as_int32(names: Sequence[str], dataset: tf.data.Dataset) -> tf.data.Dataset:
    def cast(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {
            name: tf.cast(value, tf.int32) if name in names else value
            for name, value in example.items()
        }

    return dataset.map(cast)


def write_task(cfg: DataConfig, folder: Path, progress: Progress) -> None:
    """Fills a folder with the examples of a task. Raises UserError for bad ones."""
    task, reads = find_task(cfg.task or ""), sources.reads_of(cfg)
    failed: list[UserError] = []

    def rows(split: str) -> Iterator[Row]:
        try:
            yield from sources.rows(cfg, task, split)
        except UserError as error:
            # TensorFlow passes it on, but keeps its text only.
            failed.append(error)
            raise

    path = Path(cfg.vocabulary_file)
    words = TaskVocabulary(path)
    shutil.copy(path, folder / f"vocabulary{path.suffix}")
    facts: dict[str, Any] = {"vocab_size": words.size, "arrays": {}, "counts": {}}
    try:
        made = make_task(task, rows, words, reads)
        for split in ("train", *task.held_out):
            arrays = _arrays(made, cfg, words, split, progress)
            count = len(arrays["about"])
            if not count:
                raise UserError(f"data.task={task.name}: the {split} split has no examples.")
            about = "[" + ",\n".join(arrays.pop("about")) + "]"
            if split != "train":
                arrays["about"] = np.frombuffer(about.encode(), np.uint8)
            for name, array in arrays.items():
                facts["arrays"][f"{split}_{name}"] = write_array(
                    folder / f"{split}_{name}.bin", array
                )
            facts["counts"][split] = {"examples": count}
    except tf.errors.OpError:
        if failed:
            raise failed[0] from None
        raise
    progress(0, None, "", "baselines")
    facts["baselines"] = _baselines(task, rows)
    write_facts(folder, facts)


def _arrays(
    made: seqio.Task, cfg: DataConfig, words: TaskVocabulary, split: str, progress: Progress
) -> dict[str, Any]:
    """Returns the arrays of a split, and `about`, a JSON text for each of its examples."""
    lengths = {"inputs": cfg.inputs_length, "targets": cfg.targets_length}
    text = "inputs" in made.output_features
    dataset = made.get_dataset(lengths if text else None, split, shuffle=False, num_epochs=1)
    small = np.uint16 if words.size <= 1 << 16 else np.int32
    columns: dict[str, list[Any]] = {}
    reported = 0.0
    for number, example in enumerate(dataset.as_numpy_iterator()):
        if text:
            row = {name: _padded(example[name], length) for name, length in lengths.items()}
        else:
            segments = [example[name] for name in made.output_features]
            tokens, types = join_segments(
                segments, cfg.inputs_length, first=words.first, separator=words.separator
            )
            row = {"tokens": tokens.astype(small), "types": types}
        row = {name: value.astype(small) if text else value for name, value in row.items()}
        row |= {"labels": example["label"], "about": example["about"].decode()}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
        if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            progress(number, None, "examples", split)
    about = columns.pop("about", [])
    return {name: np.stack(values) for name, values in columns.items()} | {"about": about}


def _padded(tokens: np.ndarray, length: int) -> np.ndarray:
    return np.pad(tokens[:length], (0, max(length - len(tokens), 0)))


def _baselines(task: Task, rows: Callable[[str], Iterator[Row]]) -> dict[str, Any]:
    """Scores of what looks at no input, and of a linear model over words, on each split."""
    train = list(itertools.islice(rows("train"), _BASELINE_ROWS))
    found: dict[str, Any] = {}
    for split in task.held_out:
        held = list(rows(split))
        found[split] = {
            "majority": baselines.majority(task, train, held),
            "bag_of_words": baselines.bag_of_words(task, train, held),
        }
    return found
