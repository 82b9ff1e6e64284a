"""DataConfig says where data comes from and refuses what no data could be prepared with."""

import dataclasses

import pytest

from experiments.data.config import DataConfig
from experiments.registry import resolve
from models.errors import UserError


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({}, "embedded"),
        ({"files": "*.txt"}, "files"),
        ({"tfds_name": "c4/en"}, "tfds"),
        ({"objective": "image_classification"}, "digits"),
        ({"objective": "image_classification", "tfds_name": "cifar10"}, "tfds_images"),
    ],
)
def test_source_follows_from_what_is_given(given, source):
    assert DataConfig(**given).source == source


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"objective": "span_coruption"}, "Did you mean span_corruption?"),
        ({"files": "*.txt", "tfds_name": "c4/en"}, "one of the two"),
        ({"objective": "image_classification", "files": "*.txt"}, "reads no files"),
        ({"objective": "image_classification", "image_size": 16}, "image_size=16, .*digits have"),
        ({"objective": "image_classification", "image_channels": 3}, "digits have .* 1 channel"),
        ({"image_channels": 2}, "image_channels=2: must be 1 or 3"),
        ({"image_size": 0}, "image_size=0: must be at least 1"),
        ({"validation_fraction": 0.0}, "validation_fraction=0.0: must be above 0"),
        ({"noise_density": 1.0}, "noise_density=1.0"),
        ({"mask_rate": -0.1}, "mask_rate=-0.1"),
        ({"vocabulary_size": 100}, "vocabulary_size=100: must be at least 300"),
        ({"inputs_length": 0}, "inputs_length=0: must be at least 8"),
        ({"max_train_tokens": -1}, "max_train_tokens=-1"),
        ({"mean_span_length": 0.5}, "mean_span_length=0.5"),
        ({"targets_length": 113}, "inputs_length=512 .*needs 114"),
        ({"inputs_length": 4096, "targets_length": 1000}, "sentinels and there are 100"),
    ],
)
def test_what_cannot_work_is_refused(given, told):
    with pytest.raises(UserError, match=told):
        DataConfig(**given).check()


def test_the_defaults_are_valid():
    DataConfig().check()
    DataConfig(objective="mlm", inputs_length=128).check()
    DataConfig(objective="image_classification").check()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"image_size": 112}, "model.image_size=224: .*is 112"),
        ({"image_channels": 1}, "channels=3"),
    ],
)
def test_a_model_must_fit_the_images(change, told):
    paper = resolve("vit_baseline", "paper")
    paper.check()
    with pytest.raises(UserError, match=told):
        dataclasses.replace(paper, data=dataclasses.replace(paper.data, **change)).check()
