"""Small real text for the data room's tests: parts of the standard library, as a user's files."""

import itertools
from pathlib import Path

import pytest

from experiments.data import corpus
from experiments.data.config import DataConfig
from experiments.data.prepare import prepared_folder
from experiments.data.windows import Prepared


@pytest.fixture(scope="session")
def text_files(tmp_path_factory) -> Path:
    """A folder with two .txt files of together about 600 KB."""
    folder = tmp_path_factory.mktemp("text")
    documents = (text.decode() for _, text in corpus.documents() if len(text) < 30_000)
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("\n\n".join(itertools.islice(documents, 30)))
    return folder


@pytest.fixture(scope="session")
def small_cfg(text_files) -> DataConfig:
    """Span corruption over the small text."""
    return DataConfig(
        files=str(text_files / "*.txt"),
        vocabulary_size=512,
        validation_fraction=0.2,
        inputs_length=64,
        targets_length=20,
    )


@pytest.fixture(scope="session")
def prepare_here():
    """The preparing step in this process (imports TensorFlow): (cfg, cache_dir) → Prepared."""
    from experiments.data import prepare_worker

    def prepare(cfg: DataConfig, cache_dir: Path, progress=lambda *_: None) -> Prepared:
        folder = prepared_folder(cfg, cache_dir)
        prepare_worker.prepare_here(cfg, cache_dir, folder, progress)
        return Prepared.open(folder)

    return prepare


@pytest.fixture(scope="session")
def small(small_cfg, prepare_here, tmp_path_factory) -> Prepared:
    """The small text, prepared."""
    return prepare_here(small_cfg, tmp_path_factory.mktemp("cache"))
