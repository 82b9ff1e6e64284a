"""TFDS sets that are on this disk are read as they are; the others are refused at once."""

import dataclasses

import numpy as np
import pytest
import tensorflow_datasets as tfds

from experiments.data import vocabulary
from experiments.data.config import DataConfig
from experiments.data.sources import prepared_tfds
from models.errors import UserError


class TinyText(tfds.core.GeneratorBasedBuilder):
    """A set with C4's kinds of fields."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"text": tfds.features.Text(), "url": tfds.features.Text(), "length": np.int64}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(400), "validation": self._generate_examples(90)}

    def _generate_examples(self, number):
        for k in range(number):
            text = " ".join(f"{number} thousand {k * j} words" for j in range(20))
            yield k, {"text": text, "url": "x", "length": len(text)}


@pytest.mark.parametrize("file_format", ["tfrecord", "array_record"])
def test_tfds_sets(file_format, prepare_here, tmp_path):
    TinyText(data_dir=tmp_path, file_format=file_format).download_and_prepare()
    cfg = DataConfig(
        tfds_name="tiny_text",
        tfds_data_dir=str(tmp_path),
        tfds_train_split="train[:75%]",
        vocabulary_size=300,
        objective="mlm",
        inputs_length=32,
    )
    prepared = prepare_here(cfg, tmp_path / "cache")
    assert prepared.facts["counts"]["train"]["documents"] == 300
    assert prepared.facts["counts"]["validation"]["documents"] == 90
    processor = vocabulary.load(prepared.folder / "vocabulary.model")
    text = processor.decode(prepared.array("validation", "tokens").reshape(-1).tolist())
    assert text.count("90 thousand") > 1500 and "400 thousand" not in text


def test_c4_as_tfds_defines_it(prepare_here, tmp_path, monkeypatch):
    """The real builder of c4/en, its examples made up: name, configuration, version, fields."""

    def examples(number):
        for k in range(number):
            text = f"{number} thousand {k} words of the web " * 9
            rest = dict.fromkeys(("timestamp", "url", "content-length", "content-type"), "x")
            yield k, {"text": text, **rest}

    builder = tfds.builder("c4/en", data_dir=tmp_path)
    splits = {"train": examples(300), "validation": examples(50)}
    monkeypatch.setattr(type(builder), "_split_generators", lambda *_, **__: splits)
    builder.download_and_prepare()
    cfg = DataConfig(tfds_name="c4/en", tfds_data_dir=str(tmp_path), vocabulary_size=300)
    prepared = prepare_here(cfg, tmp_path / "cache")
    assert prepared.facts["counts"]["train"]["documents"] == 300
    assert prepared.facts["counts"]["validation"]["documents"] == 50
    assert prepared.array("train", "tokens").shape[1] == 568


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"tfds_validation_split": "test"},
            r"tfds_validation_split=test: no split of .* train, validation",
        ),
        ({"tfds_train_split": "train[:x%]"}, r"tfds_train_split=train\[:x%\]: no split"),
        ({"text_field": "length"}, r"text_field=length: no text of tiny_text \(has: text, url, l"),
        ({"text_field": "body"}, r"text_field=body: no text of tiny_text"),
    ],
)
def test_tfds_sets_without_what_is_asked_for(change, told, prepare_here, tmp_path):
    TinyText(data_dir=tmp_path).download_and_prepare()
    cfg = DataConfig(tfds_name="tiny_text", tfds_data_dir=str(tmp_path), vocabulary_size=300)
    with pytest.raises(UserError, match=told):
        prepare_here(dataclasses.replace(cfg, **change), tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("c4/en", r"c4/en: not prepared under .*c4/en/3.*Run `tfds build c4/en`"),
        ("glue/sst2", "not prepared"),
        ("c44/en", r"neither does TFDS know such a set.* Did you mean c4\?"),
        ("c4/english", r"english not found.*Configurations: en, "),
        ("c4/en:9.9.9", r"cannot be loaded at version 9.9.9"),
        ("c4:::", r"Parsing builder name string"),
    ],
)
def test_tfds_sets_that_are_not_there(name, told, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: pytest.fail("asked the network"))
    with pytest.raises(UserError, match=told):
        prepared_tfds(DataConfig(tfds_name=name, tfds_data_dir=str(tmp_path)))
