"""Where the records of a task come from: official files, a prepared TFDS set, or this machine."""

import dataclasses
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from experiments.data import corpus
from experiments.data.config import DataConfig
from experiments.data.sources import prepared_tfds
from experiments.downstream import embedded
from experiments.downstream.registry import find_task
from experiments.downstream.task import Reads, Record, Row, Task
from models.errors import UserError


def reads_of(cfg: DataConfig) -> Reads:
    """Returns what the model of a configuration reads."""
    return "text" if cfg.objective == "text_to_text" else "segments"


def check_task(cfg: DataConfig) -> None:
    """Raises UserError for a task that is unknown, or that the model or the source cannot give."""
    task = find_task(cfg.task or "")
    if task.kind == "text" and cfg.objective != "text_to_text":
        raise UserError(
            f"data.task={task.name}: is answered in free text, which takes a T5; a head has classes"
            " or a score."
        )
    if task.make_records is not None and cfg.dir is not None:
        raise UserError(f"data.dir={cfg.dir}: {task.name} is made from the embedded corpus.")
    if task.make_records is None and cfg.dir is None and task.tfds_name is None:
        raise UserError(f"data.task={task.name}: set data.dir to the folder of its official files.")


def task_digest(cfg: DataConfig) -> str:
    """Returns a digest that changes when the task's examples may have. Raises UserError."""
    task = find_task(cfg.task or "")
    if task.make_records is not None:
        facts = [task.name, str(embedded.VERSION), corpus.fingerprint()]
    elif cfg.dir is not None:
        assert task.find_files is not None
        paths = [path.resolve() for path in task.find_files(Path(cfg.dir).expanduser())]
        stats = [(path, path.stat()) for path in paths]
        facts = [f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats]
    else:
        folder = Path(prepared_tfds(_with_builder(cfg, task)).data_dir)
        facts = [str(folder), (folder / "dataset_info.json").read_text()]
    return sha256("\n".join([task.name, *facts]).encode()).hexdigest()


def records(cfg: DataConfig, task: Task, split: str) -> Iterator[Record]:
    """Yields the records of a split, in their order. Raises UserError for bad ones."""
    if task.make_records is not None:
        yield from task.make_records(split)
    elif cfg.dir is not None:
        assert task.read_files is not None
        yield from task.read_files(Path(cfg.dir).expanduser(), split)
    else:
        yield from _builder_records(cfg, task, split)


def rows(cfg: DataConfig, task: Task, split: str) -> Iterator[Row]:
    """Yields the rows of a split, in their order. Raises UserError for bad records."""
    for record in records(cfg, task, split):
        yield from task.rows(record, reads_of(cfg), split)


def _with_builder(cfg: DataConfig, task: Task) -> DataConfig:
    return dataclasses.replace(
        cfg, tfds_name=cfg.tfds_name or task.tfds_name or "", task=None, objective="mlm"
    )


def _builder_records(cfg: DataConfig, task: Task, split: str) -> Iterator[Record]:
    """Yields the records of a prepared TFDS set, texts as str."""
    import tensorflow_datasets as tfds

    builder = prepared_tfds(_with_builder(cfg, task))
    missing = {"label", *task.fields} - set(builder.info.features) - {"entities"}
    if missing and task.to_rows is None:
        raise UserError(
            f"data.tfds_name={builder.info.full_name}: has no {', '.join(sorted(missing))}, which"
            f" {task.name} is made of."
        )
    parts = {"train": ""} if split == "train" else task.tfds_validation
    for part, group in parts.items():
        try:
            if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
                # TFDS has no tf.data reader for this format.
                found = builder.as_data_source(part)
            else:
                found = tfds.as_numpy(builder.as_dataset(split=part, shuffle_files=False))
        except (KeyError, ValueError):
            raise UserError(
                f"data.tfds_name={builder.info.full_name}: has no split {part} (has:"
                f" {', '.join(builder.info.splits)})."
            ) from None
        for record in found:
            decoded = {name: _text(value) for name, value in record.items()}
            yield decoded | ({"group": group} if group else {})


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name: _text(inner) for name, inner in value.items()}
    if getattr(value, "ndim", 0) and value.dtype == object:
        return [inner.decode() for inner in value]
    return value
