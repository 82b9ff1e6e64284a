"""The figures of a run in TensorBoard, Weights & Biases (offline) and MLflow (files)."""

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


@pytest.mark.slow
def test_wandb_offline_leaves_its_files_in_the_run_folder(folder, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv(tracking.VARIABLE, "wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    write(folder)
    (record,) = folder.glob("wandb/offline-run-*/*.wandb")
    assert record.read_bytes().startswith(b":W&B")
