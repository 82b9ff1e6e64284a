"""Gets a configuration's data prepared, in a process of its own, or finds it prepared already."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.data import cache, vocabulary
from experiments.data.config import DataConfig
from experiments.data.image_sets import image_set_facts
from experiments.data.objectives import objective_of
from experiments.data.sources import source_digest
from experiments.data.windows import FORMAT, Prepared, write_facts
from models.errors import UserError

# Raise it when the examples of a downstream task come to be made in another way.
TASK_FORMAT = 1
# Called with (done, total or None if unknown, unit, phase).
Progress = Callable[[int, int | None, str, str], None]


def prepare(
    cfg: DataConfig, cache_dir: Path | None = None, progress: Progress | None = None
) -> Prepared:
    """Returns the prepared data of `cfg`; equal configurations and sources share one folder.

    The work is done by another process, so that the caller never imports TensorFlow. Images of a
    TFDS set are read where they are: of them only facts are written. Raises UserError for data
    that is not there, not readable or too small, and for a full disk.
    """
    cfg.check()
    cache_dir = (cache_dir or cache.default_cache_dir()).absolute()
    folder = prepared_folder(cfg, cache_dir)
    if not folder.exists() and cfg.source == "tfds_images":
        facts = image_set_facts(cfg)
        with cache.disk_full_is_users(cache_dir):
            cache.make_whole(folder, lambda path: write_facts(path, facts))
    elif not folder.exists():
        progress = progress or (lambda *_: None)
        progress(0, None, "", "starting")
        cache.make_folder(cache_dir)
        _run_worker(cfg, cache_dir, folder, progress)
    return Prepared.open(folder)


def vocabulary_facts(cfg: DataConfig, source: str) -> dict[str, Any]:
    """Returns what the vocabulary depends on, given the source's digest."""
    if cfg.vocabulary_file:
        path = Path(cfg.vocabulary_file)
        if vocabulary.is_word_piece(cfg.vocabulary_file):
            vocabulary.read_word_pieces(path)
        else:
            vocabulary.load(path)
        content = Path(cfg.vocabulary_file).read_bytes()
        return {"model": sha256(content).hexdigest()}
    return {
        "source": source,
        "text_field": cfg.text_field,
        "train_split": cfg.tfds_train_split,
        "validation_fraction": cfg.validation_fraction,
        "size": cfg.vocabulary_size,
        "sentencepiece": version("sentencepiece"),
    }


def prepared_folder(cfg: DataConfig, cache_dir: Path) -> Path:
    """Returns the folder of the prepared data: named after all that its bytes depend on."""
    source = source_digest(cfg)
    facts: dict[str, Any] = {
        "format": FORMAT,
        "source": source,
        "validation_fraction": cfg.validation_fraction,
    }
    if cfg.source == "tfds_images":
        facts["splits"] = [cfg.tfds_train_split, cfg.tfds_validation_split]
    elif cfg.source == "task":
        facts |= {
            "task": [cfg.task, cfg.objective, TASK_FORMAT],
            "vocabulary": vocabulary_facts(cfg, source),
            "lengths": [cfg.inputs_length, cfg.targets_length],
        }
    elif cfg.source != "digits":
        facts |= {
            "vocabulary": vocabulary_facts(cfg, source),
            "text_field": cfg.text_field,
            "splits": [cfg.tfds_train_split, cfg.tfds_validation_split],
            "window_length": objective_of(cfg).window_length,
            "max_tokens": [cfg.max_train_tokens, cfg.max_validation_tokens],
        }
    return cache_dir / "prepared" / cache.digest(facts)


def _run_worker(cfg: DataConfig, cache_dir: Path, folder: Path, progress: Progress) -> None:
    """Runs experiments.data.prepare_worker; its lines on stdout are progress or a UserError."""
    job = {
        "cfg": dataclasses.asdict(cfg),
        "cache_dir": str(cache_dir),
        "folder": str(folder),
    }
    user_error = None
    with tempfile.TemporaryDirectory() as scratch, Path(scratch, "log").open("w+b") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "experiments.data.prepare_worker", json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(scratch),
        )
        try:
            assert worker.stdout is not None
            for line in worker.stdout:
                message = json.loads(line)
                if "user_error" in message:
                    user_error = message["user_error"]
                else:
                    progress(*message["progress"])
            worker.wait()
        finally:
            worker.terminate()  # it is still there only if this process was interrupted
            worker.wait()
        if user_error:
            raise UserError(user_error)
        if worker.returncode:
            log.seek(0)
            text = log.read().decode(errors="replace")[-4000:]
            raise RuntimeError(f"preparing data ended with {worker.returncode}:\n{text}")


def _environment(scratch: str) -> dict[str, str]:
    """Returns the worker's environment: this one's, but quiet, without GPUs, and tidy."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",  # TensorFlow would take the memory of every GPU
        "TMPDIR": scratch,  # where a killed TensorFlow leaves files
    }
