"""TFDS sets of images: read where they are, at random, without TensorFlow, or refused at once."""

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds

import experiments
from experiments.data.baseline import unigram_nll
from experiments.data.batches import Batches
from experiments.data.config import DataConfig
from experiments.data.objectives import batch_spec
from experiments.data.prepare import prepare
from experiments.data.sources import build_command
from experiments.registry import resolve
from models.errors import UserError

NUM_CLASSES = 12


class TinyImages(tfds.core.GeneratorBasedBuilder):
    """Twelve JPEG images of odd sizes to train on and five; image k is grey 20 k and of class k."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(num_classes=NUM_CLASSES),
            "file_name": tfds.features.Text(),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples(12),
            "validation": self._generate_examples(5),
            "test": self._generate_examples(2, labelled=False),
        }

    def _generate_examples(self, number, labelled=True):
        for k in range(number):
            image = np.full((31 + 7 * k, 60 - 3 * k, 3), 20 * k, np.uint8)
            yield k, {"image": image, "label": k if labelled else -1, "file_name": f"{k}.jpg"}


@pytest.fixture(scope="module")
def cfg(tmp_path_factory) -> DataConfig:
    folder = tmp_path_factory.mktemp("tfds")
    TinyImages(data_dir=folder, file_format="array_record").download_and_prepare()
    return DataConfig(
        objective="image_classification",
        tfds_name="tiny_images:1.0.0",
        tfds_data_dir=str(folder),
        image_size=16,
        image_channels=3,
    )


@pytest.fixture(scope="module")
def prepared(cfg, tmp_path_factory):
    return prepare(cfg, tmp_path_factory.mktemp("cache"))


def classes_seen(images: np.ndarray) -> list[int]:
    """The class of each image by its grey."""
    return np.rint((images.mean((1, 2, 3)) + 1) * 127.5 / 20).astype(int).tolist()


def test_preparing_records_facts_and_copies_nothing(cfg, prepared):
    assert prepared.vocab_size == NUM_CLASSES
    assert prepared.facts["counts"] == {"train": {"images": 12}, "validation": {"images": 5}}
    assert [path.name for path in prepared.folder.iterdir()] == ["prepared.json"]


def test_every_image_comes_once_an_epoch_with_its_label(cfg, prepared):
    batches = Batches(prepared, cfg, "train", 6)
    assert (batches.num_windows, batches.steps_per_epoch) == (12, 2)
    for epoch in range(2):
        two = [batches.batch(0, 2 * epoch + i) for i in range(2)]
        spec = batch_spec(cfg, 6)
        assert {name: (array.shape, array.dtype) for name, array in two[0].items()} == spec
        labels = np.concatenate([batch["labels"] for batch in two]).tolist()
        assert sorted(labels) == list(range(12))
        assert classes_seen(np.concatenate([batch["images"] for batch in two])) == labels
        for batch in two:
            assert np.abs(batch["images"]).max() <= 1


def test_a_training_row_is_a_function_of_seed_and_row(cfg, prepared, monkeypatch):
    drawn = []

    def crop(size, words):
        drawn.append((size, words.tolist()))
        return (0, 0, *size)

    monkeypatch.setattr("experiments.data.images.random_crop", crop)
    by_six, by_four = (Batches(prepared, cfg, "train", size) for size in (6, 4))
    whole = [by_six.batch(5, i) for i in range(2)]
    first, drawn[:] = sorted(drawn), []
    parts = [by_four.batch(5, i, rows) for i in range(3) for rows in (slice(0, 1), slice(1, 4))]
    assert sorted(drawn) == first and len({str(words) for _, words in drawn}) == 12
    for name in whole[0]:
        joined = [np.concatenate([batch[name] for batch in some]) for some in (whole, parts)]
        np.testing.assert_array_equal(*joined)
    assert not np.array_equal(by_six.batch(6, 0)["labels"], whole[0]["labels"])


def test_validation_is_fixed_and_filled_up_with_weightless_images(cfg, prepared, monkeypatch):
    monkeypatch.setattr("experiments.data.images.random_crop", None)  # using it fails the test
    batches = Batches(prepared, cfg, "validation", 4)
    assert batches.steps_per_epoch == 2
    two = [batches.batch(0, i) for i in range(2)]
    assert np.concatenate([batch["weights"] for batch in two]).tolist() == [1.0] * 5 + [0.0] * 3
    labels = np.concatenate([batch["labels"] for batch in two])
    assert sorted(labels[:5].tolist()) == list(range(5))
    for name in two[0]:
        np.testing.assert_array_equal(two[1][name], batches.batch(9, 3)[name])


def test_baseline_is_uniform(cfg, prepared):
    total, count = unigram_nll(prepared, cfg, [Batches(prepared, cfg, "validation", 4).batch(0, 1)])
    assert (total, count) == (pytest.approx(np.log(NUM_CLASSES), rel=1e-12), 1.0)


def test_other_splits_are_other_data(cfg, prepared, tmp_path):
    half = dataclasses.replace(cfg, tfds_train_split="train[:50%]")
    other = prepare(half, tmp_path)
    assert other.facts["counts"]["train"] == {"images": 6}
    assert len({prepared.digest, other.digest, prepare(cfg, tmp_path).digest}) == 2
    assert Batches(other, half, "train", 3).steps_per_epoch == 2


def test_imagenet_as_tfds_defines_it(tmp_path, monkeypatch):
    """The real builder, its images made up: name, version, splits and fields are as expected."""

    def examples(number):
        for k in range(number):
            image = np.full((40, 50, 3), 20 * k, np.uint8)
            yield k, {"image": image, "label": k, "file_name": f"{k}.JPEG"}

    splits = {"train": examples(6), "validation": examples(4)}
    builder = tfds.builder("imagenet2012:5.1.0", data_dir=tmp_path, file_format="array_record")
    monkeypatch.setattr(type(builder), "_split_generators", lambda *_: splits)
    builder.download_and_prepare()
    cfg = dataclasses.replace(resolve("vit_baseline", "paper").data, tfds_data_dir=str(tmp_path))
    prepared = prepare(cfg, tmp_path / "cache")
    assert prepared.vocab_size == 1000
    batch = Batches(prepared, cfg, "train", 6).batch(0, 0)
    assert batch["images"].shape == (6, 224, 224, 3)
    assert classes_seen(batch["images"]) == batch["labels"].tolist()


def test_images_without_labels_are_refused(cfg, tmp_path):
    test = dataclasses.replace(cfg, tfds_validation_split="test")
    with pytest.raises(UserError, match="tfds_validation_split=test: has images without a label"):
        Batches(prepare(test, tmp_path), test, "validation", 2).batch(0, 0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"tfds_name": "imagenet2012:5.1.0"},
            r"not prepared.*array_record.*_train\.tar.*_val\.tar",
        ),
        (
            {"tfds_name": "cifar10"},
            r"not prepared under .*/cifar10/3",
        ),
        ({"tfds_name": "cifar11"}, "Did you mean cifar10"),
        ({"tfds_validation_split": "dev"}, "no split of .* train, validation"),
        ({"tfds_train_split": "train[:0]"}, r"tfds_train_split=train\[:0\]: has no images"),
    ],
)
def test_what_is_not_there_is_refused_at_once(change, told, cfg, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", None)  # asking for the network fails the test
    with pytest.raises(UserError, match=told):
        prepare(dataclasses.replace(cfg, **change), tmp_path)


def test_sets_that_cannot_be_read_at_random_are_refused(cfg, tmp_path):
    TinyImages(data_dir=tmp_path, file_format="tfrecord").download_and_prepare()
    with pytest.raises(UserError, match=r"prepared as tfrecord.*data_dir='ANOTHER_FOLDER'"):
        prepare(dataclasses.replace(cfg, tfds_data_dir=str(tmp_path)), tmp_path / "cache")


def test_the_command_that_is_told_prepares_the_set(cfg, tmp_path):
    python, option, program = shlex.split(build_command(cfg, str(tmp_path)))
    assert (python, option) == ("python", "-c")
    exec(program, {})  # in this process, which knows the builder
    prepare(dataclasses.replace(cfg, tfds_data_dir=str(tmp_path)), tmp_path / "cache")


def test_sets_without_labels_are_refused(cfg, tmp_path):
    class TinyPlain(TinyImages, skip_registration=True):
        def _info(self):
            features = tfds.features.FeaturesDict({"image": tfds.features.Image()})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _generate_examples(self, number, labelled=True):
            yield 0, {"image": np.zeros((9, 9, 3), np.uint8)}

    TinyPlain(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    plain = dataclasses.replace(cfg, tfds_name="tiny_plain", tfds_data_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"no `label` of type ClassLabel .has: image"):
        prepare(plain, tmp_path / "cache")


_TRAIN = """
import json, sys
from pathlib import Path
from experiments.data.batches import Batches
from experiments.data.config import DataConfig
from experiments.data.prepare import prepare

cfg = DataConfig(**json.loads(sys.argv[1]))
prepared = prepare(cfg, Path(sys.argv[2]))
for split in ("train", "validation"):
    Batches(prepared, cfg, split, 4).batch(0, 0)
print(sorted({"tensorflow", "seqio", "jax"} & set(sys.modules)))
"""


def test_training_imports_no_tensorflow(cfg, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _TRAIN, json.dumps(dataclasses.asdict(cfg)), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(experiments.__file__).parents[1],
        check=True,
    )
    assert done.stdout == "[]\n"
