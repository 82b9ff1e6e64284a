"""DataConfig says where data comes from and refuses what no data could be prepared with."""

import pytest

from experiments.data.config import DataConfig
from models.errors import UserError


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ({}, "embedded"),
        ({"files": "*.txt"}, "files"),
        ({"tfds_name": "c4/en"}, "tfds"),
        ({"objective": "image_classification"}, "digits"),
    ],
)
def test_source_follows_from_what_is_given(given, source):
    assert DataConfig(**given).source == source


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"objective": "span_coruption"}, "Did you mean span_corruption?"),
        ({"files": "*.txt", "tfds_name": "c4/en"}, "one of the two"),
        ({"objective": "image_classification", "files": "*.txt"}, "embedded digits only"),
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
