"""Where a run's figures go beside metrics.jsonl: TensorBoard always, others if asked for.

`--track=wandb,mlflow` asks for Weights & Biases and MLflow, optional packages (extras `wandb` and
`mlflow`). Their own variables say where they write: WANDB_MODE=offline keeps W&B's files in the run
folder, MLFLOW_TRACKING_URI=file:runs/mlflow MLflow's beside it.
"""

import importlib.util
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tensorboardX import SummaryWriter

from models.errors import UserError, did_you_mean

# Names of trackers, comma-separated; `--track` sets it, so that what a run starts inherits it.
VARIABLE = "KPD_TRACK"


class Writer(Protocol):
    """Takes the figures of a run as they come."""

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run folder."""

    def __init__(self, folder: pathlib.Path, experiment: str, config: Mapping[str, Any]):
        self._writer = SummaryWriter(str(folder), filename_suffix=".kpd")

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(f"{split}/{name}", value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; taken up again under the same id after a stop."""

    def __init__(self, folder: pathlib.Path, experiment: str, config: Mapping[str, Any]):
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "kpd"),
            id=f"{experiment}-{folder.name}".replace("/", "-"),
            name=f"{experiment}/{folder.name}",
            group=experiment,
            config=dict(config),
            dir=str(folder),
            resume="allow",
        )

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log({f"{split}/{name}": value for name, value in values.items()}, step=step)

    def close(self) -> None:
        self._run.finish()


class MlFlow:
    """A run of MLflow in the experiment of the same name; taken up again after a stop."""

    def __init__(self, folder: pathlib.Path, experiment: str, config: Mapping[str, Any]):
        # Files are all that mlflow-skinny can write without a server; newer MLflow asks for a yes.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        import mlflow

        self._client = mlflow.MlflowClient()
        found = self._client.get_experiment_by_name(experiment)
        identity = found.experiment_id if found else self._client.create_experiment(experiment)
        known = self._client.search_runs(
            [identity], filter_string=f"attributes.run_name = '{folder.name}'"
        )
        if known:
            self._run = known[0].info.run_id
        else:
            self._run = self._client.create_run(identity, run_name=folder.name).info.run_id
            for name, value in config.items():
                self._client.log_param(self._run, name, value)

    def log(self, split: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, f"{split}/{name}", value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)


_TRACKERS = {"wandb": WeightsAndBiases, "mlflow": MlFlow}


def check_trackers(names: Sequence[str]) -> None:
    """Raises UserError for a tracker that is not known or not installed."""
    for name in names:
        if name not in _TRACKERS:
            raise UserError(
                f"--track {name}: not one of {', '.join(_TRACKERS)}.{did_you_mean(name, _TRACKERS)}"
            )
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--track {name}: not installed; pip install -e '.[{name}]'.")


def asked_for() -> list[str]:
    """The trackers that this process is to write to, beside TensorBoard."""
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def open_writers(folder: pathlib.Path, experiment: str, config: Mapping[str, Any]) -> list[Writer]:
    """Opens TensorBoard and what `--track` asks for; `config` is what those show of the run."""
    names = asked_for()
    check_trackers(names)
    kinds: list[Any] = [TensorBoard, *(_TRACKERS[name] for name in names)]
    return [kind(folder, experiment, config) for kind in kinds]
