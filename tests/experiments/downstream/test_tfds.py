"""The same tasks over TFDS's builders: their records give the same rows, and none is downloaded."""

import dataclasses

import pytest
import tensorflow_datasets as tfds

from experiments.data.config import DataConfig
from experiments.downstream import sources
from experiments.downstream.registry import TASKS
from models.errors import UserError

CFG = DataConfig(objective="classification", task="glue/rte", vocabulary_file="v.model")
WITH_BUILDER = [name for name, task in TASKS.items() if task.tfds_name]


@pytest.mark.parametrize("name", WITH_BUILDER)
def test_builders_have_the_fields_of_the_tasks(name):
    """The builders' own declarations, which need no data."""
    task = TASKS[name]
    features = tfds.builder(task.tfds_name).info.features
    asked = set(task.fields) | ({"label"} if name != "superglue/record" else {"answers"})
    assert asked <= set(features)
    if task.labels and name != "superglue/record":
        assert tuple(features["label"].names) == task.labels


@pytest.mark.parametrize("name", ["glue/mnli", "glue/stsb", "superglue/record", "superglue/wsc"])
def test_records_of_builders_become_rows(name, monkeypatch):
    task = TASKS[name]
    with tfds.testing.mock_data(num_examples=3):
        builder = tfds.builder(task.tfds_name)
        monkeypatch.setattr(sources, "prepared_tfds", lambda cfg: builder)
        if name == "superglue/wsc":
            # Drawn spans point anywhere; only the fields can be looked at.
            records = list(sources.records(dataclasses.replace(CFG, task=name), task, "train"))
            assert all(isinstance(record["text"], str) for record in records)
            return
        for objective in ("classification", "text_to_text"):
            cfg = dataclasses.replace(CFG, task=name, objective=objective)
            rows = list(sources.rows(cfg, task, "validation"))
            assert rows
            if name == "glue/mnli":
                assert [row.group for row in rows] == ["matched"] * 3 + ["mismatched"] * 3
                assert {row.label for row in rows} <= {0.0, 1.0, 2.0}


def test_set_that_is_not_prepared_is_an_error_that_says_how(tmp_path):
    cfg = dataclasses.replace(CFG, tfds_data_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"glue/rte: not prepared.*tfds build glue/rte"):
        list(sources.rows(cfg, TASKS["glue/rte"], "train"))


def test_configuration_of_a_task():
    CFG.check()
    with pytest.raises(UserError, match=r"no such task. Did you mean glue/rte\?"):
        dataclasses.replace(CFG, task="glue/rt").check()
    with pytest.raises(UserError, match=r"data\.vocabulary_file is empty"):
        dataclasses.replace(CFG, vocabulary_file="").check()
    with pytest.raises(UserError, match=r"set data\.dir"):
        dataclasses.replace(CFG, task="sni", objective="text_to_text").check()
    with pytest.raises(UserError, match="made from the embedded corpus"):
        dataclasses.replace(CFG, task="embedded/kind", dir="x").check()
    with pytest.raises(UserError, match="of downstream tasks"):
        dataclasses.replace(CFG, objective="mlm").check()
