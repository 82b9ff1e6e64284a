"""The process that prepares: runs a SeqIO task once and writes its token windows.

Told what to do by one JSON argument; says how far it is, or what the user did wrong, in JSON
lines on stdout. SeqIO tokenises documents in as many threads as there are cores, and keeps their
order, so that the windows do not depend on the number of cores.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from experiments.data import cache, vocabulary
from experiments.data.config import DataConfig
from experiments.data.digits import NUM_CLASSES
from experiments.data.objectives import objective_of
from experiments.data.prepare import Progress, vocabulary_facts
from experiments.data.sources import source_digest
from experiments.data.tasks import (
    HANDFUL,
    TextSource,
    make_task,
    text_source,
    vocabulary_sample,
)
from experiments.data.tfds_builders import embedded_builder
from experiments.data.windows import WindowWriter, write_array, write_facts
from models.errors import UserError

_SECONDS_BETWEEN_REPORTS = 0.2


def prepare_here(cfg: DataConfig, cache_dir: Path, folder: Path, progress: Progress) -> None:
    """Fills `folder` with the prepared data of `cfg`, or finds that another process did."""
    write = {"digits": _write_digits, "task": _write_task}.get(cfg.source, _write_text)

    def on_wait() -> None:
        progress(0, None, "", "waiting for another process that prepares the same data")

    cache.make_whole(folder, lambda path: write(cfg, cache_dir, path, progress), on_wait)


def _write_task(cfg: DataConfig, cache_dir: Path, folder: Path, progress: Progress) -> None:
    from experiments.data.task_worker import write_task  # seldom needed

    del cache_dir
    write_task(cfg, folder, progress)


def _write_text(cfg: DataConfig, cache_dir: Path, folder: Path, progress: Progress) -> None:
    progress(0, None, "", "corpus")
    text = text_source(cfg, cache_dir)
    try:
        model = _vocabulary_model(cfg, cache_dir, text, progress)
        shutil.copy(model, folder / "vocabulary.model")
        facts = _write_splits(cfg, text, model, folder, progress)
    except tf.errors.OpError:
        if text.user_error:
            raise text.user_error from None
        raise
    write_facts(folder, facts)


def _write_splits(
    cfg: DataConfig, text: TextSource, model: Path, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Writes all arrays of a text corpus and returns what is to be known of them."""
    bytes_per_token = vocabulary.bytes_per_token(vocabulary.load(model))
    about = write_array(folder / "vocabulary_bytes.bin", bytes_per_token)
    facts: dict[str, Any] = {
        "vocab_size": len(bytes_per_token),
        "arrays": {"vocabulary_bytes": about},
        "counts": {},
    }
    task = make_task(text, model)
    window_length = objective_of(cfg).window_length
    for split, max_tokens in (
        ("train", cfg.max_train_tokens),
        ("validation", cfg.max_validation_tokens),
    ):
        text.bytes_read = 0
        path = folder / f"{split}_tokens.bin"
        writer = WindowWriter(path, window_length, len(bytes_per_token))
        dataset = task.get_dataset(None, text.splits[split], shuffle=False, num_epochs=1)
        report = _reporter(text, split, progress)
        facts["counts"][split] = _write_windows(dataset, writer, max_tokens, report)
        facts["arrays"][f"{split}_tokens"] = writer.close()
        if not writer.num_windows:
            raise UserError(
                f"data: the {split} split has {facts['counts'][split]['tokens']} tokens, less than"
                f" one window of {window_length}. Lower data.inputs_length, give more text or"
                " change data.validation_fraction."
            )
        if split == "train":
            about = write_array(folder / "train_counts.bin", writer.token_counts)
            facts["arrays"]["train_counts"] = about
    return facts


def _vocabulary_model(
    cfg: DataConfig, cache_dir: Path, text: TextSource, progress: Progress
) -> Path:
    """Returns the user's model file, or the one trained for this source, now or earlier."""
    if cfg.vocabulary_file:
        return Path(cfg.vocabulary_file)

    def write(folder: Path) -> None:
        progress(0, None, "", "vocabulary")
        sample = vocabulary_sample(cfg, text)
        (folder / "vocabulary.model").write_bytes(vocabulary.train(sample, cfg.vocabulary_size))

    facts = vocabulary_facts(cfg, source_digest(cfg))
    folder = cache_dir / "vocabularies" / cache.digest(facts)
    cache.make_whole(folder, write)
    return folder / "vocabulary.model"


def _write_windows(
    dataset: tf.data.Dataset,
    writer: WindowWriter,
    max_tokens: int,
    report: Callable[[int], None],
) -> dict[str, int]:
    """Writes the documents, up to max_tokens (0: all), and returns how much was read."""
    documents = tokens = num_bytes = 0
    for document, text in _documents(dataset):
        writer.add(document)
        documents += 1
        tokens += len(document)
        num_bytes += len(text)
        report(documents)
        if max_tokens and tokens >= max_tokens:
            break
    return {"documents": documents, "tokens": tokens, "bytes": num_bytes}


def _documents(dataset: tf.data.Dataset) -> Iterator[tuple[np.ndarray, bytes]]:
    """Yields (tokens, text) of each document, fetched from TensorFlow by the handful."""
    for handful in dataset.ragged_batch(HANDFUL).as_numpy_iterator():
        yield from zip(handful["targets"], handful["targets_pretokenized"], strict=True)


def _reporter(text: TextSource, split: str, progress: Progress) -> Callable[[int], None]:
    """Returns a function of the documents so far that reports now and then."""
    total = text.totals[split]
    last = 0.0

    def report(documents: int) -> None:
        nonlocal last
        if time.monotonic() - last > _SECONDS_BETWEEN_REPORTS:
            last = time.monotonic()
            done = text.bytes_read if text.unit == "bytes" else documents
            progress(done, total, text.unit, f"{split} windows")

    return report


def _write_digits(cfg: DataConfig, cache_dir: Path, folder: Path, progress: Progress) -> None:
    progress(0, None, "", "digits")
    builder = embedded_builder(cfg, cache_dir)
    facts: dict[str, Any] = {"vocab_size": NUM_CLASSES, "arrays": {}, "counts": {}}
    for split in ("train", "validation"):
        records = list(builder.as_data_source(split))
        if not records:
            raise UserError(
                f"data.validation_fraction={cfg.validation_fraction}: leaves no {split} images."
            )
        labels = np.array([record["label"] for record in records], np.uint8)
        arrays = {"images": np.stack([record["image"] for record in records]), "labels": labels}
        if split == "train":
            arrays["counts"] = np.bincount(labels, minlength=NUM_CLASSES)
        for name, array in arrays.items():
            about = write_array(folder / f"{split}_{name}.bin", array)
            facts["arrays"][f"{split}_{name}"] = about
        facts["counts"][split] = {"images": len(records)}
    write_facts(folder, facts)


def main() -> None:
    """Does the job of the first argument; exits with 2 after a UserError."""
    job = json.loads(sys.argv[1])
    # Libraries that print must not disturb the JSON lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def progress(done: int, total: int | None, unit: str, phase: str) -> None:
        answers.write(json.dumps({"progress": [done, total, unit, phase]}) + "\n")

    tfds.disable_progress_bar()
    # Unwind when asked to end, so that temporary folders go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cache_dir = Path(job["cache_dir"])
    try:
        with cache.disk_full_is_users(cache_dir):
            prepare_here(DataConfig(**job["cfg"]), cache_dir, Path(job["folder"]), progress)
    except UserError as error:
        answers.write(json.dumps({"user_error": str(error)}) + "\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
