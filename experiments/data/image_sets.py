"""Labelled images of a TFDS set, read at random where they are. Imports no TensorFlow."""

from typing import Any

import numpy as np

from experiments.data.config import DataConfig
from experiments.data.sources import build_command, check_splits, prepared_tfds
from models.errors import UserError


def image_set_facts(cfg: DataConfig) -> dict[str, Any]:
    """Returns what is to be known of a set of images, from what its builder says of it.

    Raises UserError if the set is not there, cannot be read at random, or holds no labelled images.
    """
    import tensorflow_datasets as tfds

    builder = prepared_tfds(cfg)
    features, splits = dict(builder.info.features.items()), check_splits(cfg, builder)
    for name, kind in (("image", tfds.features.Image), ("label", tfds.features.ClassLabel)):
        if not isinstance(features.get(name), kind):
            raise UserError(
                f"data.tfds_name={cfg.tfds_name}: has no `{name}` of type {kind.__name__} (has:"
                f" {', '.join(features)}), so that no image classifier can be trained on it."
            )
    dtype = features["image"].np_dtype
    if dtype != np.uint8:
        raise UserError(f"data.tfds_name={cfg.tfds_name}: has images of {dtype}, not uint8.")
    random_access = tfds.core.FileFormat.with_random_access()
    if not builder.info.available_file_formats() & random_access:
        raise UserError(
            f"data.tfds_name={cfg.tfds_name}: prepared as {builder.info.file_format.value}, which"
            f" cannot be read at random. Run `{build_command(cfg, 'ANOTHER_FOLDER')}`, and set"
            " data.tfds_data_dir to that folder."
        )
    facts: dict[str, Any] = {
        "vocab_size": features["label"].num_classes,
        "arrays": {},
        "read_in_place": {},
        "counts": {},
    }
    # Splits that are asked for may be slices of these.
    stored = [
        [part.name, part.num_examples, part.num_bytes] for part in builder.info.splits.values()
    ]
    for name, split in splits.items():
        info = builder.info.splits[split]
        if not info.num_examples:
            raise UserError(f"data.tfds_{name}_split={split}: has no images.")
        facts["counts"][name] = {"images": info.num_examples}
        facts["read_in_place"][f"{name}_records"] = {
            "set": builder.info.full_name,
            "split": split,
            "stored": sorted(stored),
        }
    return facts


class ImageRecords:
    """One split of a set: indexed by integers, gives records of an encoded image and its label."""

    def __init__(self, cfg: DataConfig, split: str) -> None:
        import tensorflow_datasets as tfds

        builder = prepared_tfds(cfg)
        name = check_splits(cfg, builder)[split]
        self._asked_for = f"data.tfds_{split}_split={name}"
        self._records = builder.as_data_source(name, decoders={"image": tfds.decode.SkipDecoding()})

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, indices: np.ndarray) -> np.ndarray:
        """Returns an object array of {"image": bytes, "label": int}. Raises UserError if one has
        no label, as in the test split of a competition.
        """
        records = self._records.__getitems__(indices.tolist())
        if any(record["label"] < 0 for record in records):
            raise UserError(f"{self._asked_for}: has images without a label.")
        return np.array(records, object)
