"""The figures of a run in TensorBoard, Weights & Biases (offline) and MLflow (files)."""

import json
import struct

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments import tracking
from experiments.tracking import open_writers
from models.errors import UserError

CONFIG = {"seed": 3, "train.batch_size": 8}


def write(folder):
    for writer in open_writers(folder, "dense_t5", CONFIG):
        for step in (1, 2):
            writer.log("train", step, {"loss": 1.0 / step})
        writer.close()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(tracking.VARIABLE, raising=False)
    made = tmp_path / "runs" / "dense_t5" / "demo-60s-s3-0123abcd"
    made.mkdir(parents=True)
    return made


def test_tensorboard_is_always_written(folder):
    write(folder)
    events = EventAccumulator(str(folder))
    events.Reload()
    assert [point.value for point in events.Scalars("train/loss")] == [1.0, 0.5]


def test_unknown_and_missing_trackers_are_named(folder, monkeypatch):
    with pytest.raises(UserError, match=r"--track wandbb: .* Did you mean wandb\?"):
        tracking.check_trackers(["wandbb"])
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--track mlflow: not installed; .*\[mlflow\]"):
        tracking.check_trackers(["mlflow"])


@pytest.mark.slow
def test_mlflow_keeps_files_and_takes_up_a_run_again(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv(tracking.VARIABLE, "mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlflow")
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlflow")
    write(folder)
    write(folder)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("dense_t5")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["train.batch_size"] == "8"
    assert run.data.metrics["train/loss"] == 0.5
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {point.step for point in history} == {1, 2}


def wandb_records(path):
    """W&B's own messages in an offline file, a LevelDB log: blocks of 32 KiB after seven bytes.

    W&B itself reads it by a binary alone (wandb-core); its messages have Python classes.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, part, records = path.read_bytes(), 7, b"", []
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        # Checksum, size, and whether a message ends here.
        size, kind = struct.unpack_from("<HB", data, at + 4)
        part += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            records.append(Record.FromString(part))
            part = b""
    return records


@pytest.mark.slow
def test_wandb_offline_keeps_every_figure_in_the_run_folder(folder, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv(tracking.VARIABLE, "wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    write(folder)
    # Its process writes the last block as it ends.
    wandb.teardown()
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    records = wandb_records(path)
    history = [
        {item.nested_key[0] if item.nested_key else item.key: item.value_json for item in line}
        for line in (record.history.item for record in records if record.HasField("history"))
    ]
    assert [(json.loads(line["_step"]), json.loads(line["train/loss"])) for line in history] == [
        (1, 1.0),
        (2, 0.5),
    ]
    (run,) = (record.run for record in records if record.HasField("run"))
    assert run.run_id == "dense_t5-demo-60s-s3-0123abcd" and run.run_group == "dense_t5"
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config.items() >= CONFIG.items()
