"""The embedded corpora as TFDS builders. Imported by the preparing step alone."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from experiments.data import corpus
from experiments.data.cache import digest, make_whole
from experiments.data.config import DataConfig
from experiments.data.digits import IMAGE_SHAPE, NUM_CLASSES
from experiments.data.documents import split_of
from experiments.data.sources import source_digest


class _SplitByHash(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """Puts each example into train or validation by a hash of its content."""

    def __init__(
        self, *, validation_fraction: float = DataConfig.validation_fraction, **kwargs: Any
    ) -> None:
        self._validation_fraction = validation_fraction
        super().__init__(**kwargs)

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        del dl_manager  # nothing is downloaded
        return {split: self._generate_examples(split) for split in ("train", "validation")}


class StandardLibrary(_SplitByHash):
    """Prose and code of the running Python's standard library; one module or topic an example."""

    VERSION = tfds.core.Version(corpus.VERSION)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Topics, docstrings and sources of the standard library, without tests.",
            features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
            homepage="https://docs.python.org/3/library/",
        )

    def _generate_examples(self, split: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, text in corpus.documents():
            if split_of(text, self._validation_fraction) == split:
                yield name, {"text": text}


class Digits(_SplitByHash):
    """1,797 handwritten digits of 8 × 8 pixels, 0 to 16 (UCI; as packed with scikit-learn)."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        image = tfds.features.Tensor(shape=IMAGE_SHAPE, dtype=np.uint8)
        label = tfds.features.ClassLabel(num_classes=NUM_CLASSES)
        return tfds.core.DatasetInfo(
            builder=self,
            description="Handwritten digits, 8 × 8 pixels of 17 grey levels.",
            features=tfds.features.FeaturesDict({"image": image, "label": label}),
            homepage="https://archive.ics.uci.edu/dataset/80",
        )

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = digits.images.astype(np.uint8)[..., None]
        for number, (image, label) in enumerate(zip(images, digits.target, strict=True)):
            if split_of(image.tobytes(), self._validation_fraction) == split:
                yield number, {"image": image, "label": int(label)}


def embedded_builder(cfg: DataConfig, cache_dir: Path) -> tfds.core.DatasetBuilder:
    """Returns the builder of an embedded corpus, prepared under `cache_dir` if it was not."""
    facts = {"source": source_digest(cfg), "validation_fraction": cfg.validation_fraction}
    data_dir = cache_dir / "tfds" / digest(facts)
    make = functools.partial(
        Digits if cfg.source == "digits" else StandardLibrary,
        file_format="array_record",
        validation_fraction=cfg.validation_fraction,
    )
    make_whole(data_dir, lambda folder: make(data_dir=folder).download_and_prepare())
    return make(data_dir=data_dir)
