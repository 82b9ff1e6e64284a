"""The trained network that is fine-tuned: a finished run of ours, or Hugging Face's weights."""

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

from experiments.config import ModelConfig
from experiments.data.config import DataConfig
from experiments.downstream import embedded
from experiments.init import InitConfig
from experiments.run_folder import read_json
from models.config import BertConfig, T5Config, ViTConfig
from models.errors import UserError
from sparsity.config import PruningConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of the trained network without reading its parameters."""

    # Folder of the run or of the weights; scores are written below it.
    folder: Path
    # Name of its experiment, or of the folder of weights.
    name: str
    scale: str
    model: ModelConfig
    # What it was pre-trained on; None for weights from elsewhere.
    data: DataConfig | None
    # The vocabulary that it was trained with; empty for images.
    vocabulary_file: str
    # How its zeros are kept; None for a dense one.
    pruning: PruningConfig | None
    # Further groups of its experiment that decide the network (such as fff).
    groups: dict[str, Any]

    @property
    def init(self) -> InitConfig:
        """The group of an experiment that starts from it."""
        path = str(self.folder.resolve())
        if self.data is None:
            return InitConfig(hugging_face=path)
        return InitConfig(run=path, keep_zeros=self.pruning is not None)


def open_source(path: str) -> Source:
    """Reads what a folder holds. Raises UserError if it is neither a run nor weights."""
    folder = Path(path).expanduser()
    config = read_json(folder / "config.json")
    if config is None:
        raise UserError(
            f"--run {path}: no config.json there; give a run's folder, or one of"
            " weights as transformers saves them."
        )
    if "experiment" in config:
        return _from_run(folder, config["experiment"])
    return _from_hugging_face(folder)


def _from_run(folder: Path, stored: dict[str, Any]) -> Source:
    summary = read_json(folder / "summary.json")
    if summary is None or summary["status"] != "finished":
        status = "is not finished" if summary is None else f"is {summary['status']}"
        raise UserError(f"--run {folder}: this run {status}; finish it first.")
    from experiments.config import Experiment

    hints = typing.get_type_hints(Experiment)
    groups = {
        name: decode(hints[name], stored[name])
        for name in ("fff",)
        if name in hints and stored.get(name) is not None
    }
    data = decode(DataConfig, stored["data"])
    pruning = decode(hints["pruning"], stored.get("pruning"))
    if pruning is not None:
        pruning = dataclasses.replace(
            pruning,
            rule="static",
            schedule="constant",
            distribution="uniform",
            exclude=(*pruning.exclude, "task_head"),
        )
    return Source(
        folder=folder,
        name=stored["name"],
        scale=stored["scale"],
        model=decode(hints["model"], stored["model"]),
        data=data,
        vocabulary_file="" if data.objective == "image_classification" else _vocabulary(data),
        pruning=pruning,
        groups=groups,
    )


def _vocabulary(data: DataConfig) -> str:
    """Returns the model file that the run's data was prepared with, made anew if it is gone."""
    if data.vocabulary_file:
        return data.vocabulary_file
    from experiments.data.prepare import prepare

    return str(prepare(data).folder / "vocabulary.model")


def _from_hugging_face(folder: Path) -> Source:
    from models.hugging_face.load import load

    model, _ = load(folder)
    assert isinstance(model, BertConfig | T5Config | ViTConfig)
    vocabulary = ""
    if not isinstance(model, ViTConfig):
        name = "spiece.model" if isinstance(model, T5Config) else "vocab.txt"
        if not (folder / name).is_file():
            raise UserError(f"--run {folder}: has no {name}, the vocabulary of these weights.")
        vocabulary = str((folder / name).resolve())
    return Source(
        folder=folder,
        name=folder.resolve().name,
        scale="paper",
        model=model,
        data=None,
        vocabulary_file=vocabulary,
        pruning=None,
        groups={},
    )


def check_no_leak(source: Source, tasks: list[str]) -> None:
    """Raises UserError where the embedded suite asks about text that the run was trained on."""
    data = source.data
    if data is None or not any(task.startswith("embedded/") for task in tasks):
        return
    if data.source == "embedded" and data.validation_fraction < embedded.HELD_OUT_FRACTION:
        raise UserError(
            f"--run {source.folder}: was trained with data.validation_fraction="
            f"{data.validation_fraction}, so it has read what the embedded suite asks about; that "
            f"takes at least {embedded.HELD_OUT_FRACTION}."
        )


def decode(annotation: Any, value: Any) -> Any:
    """Turns JSON into what `dataclasses.asdict` had made it from, by the types of the fields.

    Of several dataclasses that a field may hold, the one whose fields are the value's is meant; a
    field that is missing has its default.
    """
    if value is None:
        return None
    options = (
        typing.get_args(annotation)
        if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
        else (annotation,)
    )
    if isinstance(value, dict):
        known: list[Any] = [option for option in options if dataclasses.is_dataclass(option)]
        fields = {option: {f.name for f in dataclasses.fields(option)} for option in known}
        fitting = [option for option in known if set(value) <= fields[option]]
        if not fitting:
            raise UserError(f"config.json: {sorted(value)} are not the fields of any known group.")
        best = min(fitting, key=lambda option: len(fields[option]))
        hints = typing.get_type_hints(best)
        return best(**{name: decode(hints[name], inner) for name, inner in value.items()})
    if isinstance(value, list) and any(
        typing.get_origin(option) is tuple or option is tuple for option in options
    ):
        return tuple(tuple(inner) if isinstance(inner, list) else inner for inner in value)
    return value
