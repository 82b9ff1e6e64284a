"""Finished runs, read back: their facts, and their parameters without the optimiser's state."""

import dataclasses
import hashlib
import json
import pathlib
import re
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from experiments.checkpoint import digest_of
from experiments.config import ModelConfig
from experiments.downstream.source import decode
from experiments.run_folder import read_json
from models.errors import UserError
from sparsity.config import PruningConfig

# Parameters by path.
Flat = dict[str, np.ndarray]

_PARAMS = re.compile(r"^params/")
# Also what schedule-free keeps beside them: the base iterates z and the interpolation β₁.
_WITH_AVERAGE = re.compile(r"^params/|^opt/(.*/)?(z/|b1$)")


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A finished run's folder, its config.json and its summary.json."""

    folder: pathlib.Path
    config: dict[str, Any]
    summary: dict[str, Any]

    @property
    def experiment(self) -> dict[str, Any]:
        """Its configuration, as JSON."""
        return self.config["experiment"]

    def model(self) -> ModelConfig:
        """The configuration of its network."""
        return decode(ModelConfig, self.experiment["model"])

    def pruning(self) -> PruningConfig | None:
        """How it was pruned; None for a dense run."""
        cfg = decode(PruningConfig, self.experiment["pruning"])
        return cfg if cfg is not None and cfg.rule != "none" else None

    def params(self) -> Flat:
        """Reads the parameters that it answers with after its last step, pruned weights as zeros.

        Raises:
          UserError: the checkpoint is missing or damaged.
        """
        checkpoint = (self.folder / "checkpoints" / str(self.summary["steps"])).absolute()
        if not checkpoint.is_dir():
            raise UserError(f"{self.folder}: its last checkpoint ({checkpoint.name}) is gone.")
        try:
            digests = json.loads((checkpoint / "meta" / "metadata").read_text())["digests"]
            averaged = self.experiment["optimizer"]["name"] == "schedule_free"
            stored = _read_part(checkpoint / "state", _WITH_AVERAGE if averaged else _PARAMS)
        # What Orbax and TensorStore raise for missing, truncated or unreadable files.
        except (ValueError, OSError, KeyError) as error:
            reason = str(error).strip().splitlines()[0][:160]
            raise UserError(f"{checkpoint}: damaged ({reason}).") from error
        for name, digest in digest_of(stored).items():
            if int(digest) != digests[name]:
                raise UserError(f"{checkpoint}: damaged ({name} is not what was saved).")
        params = {
            name.removeprefix("params/"): array
            for name, array in stored.items()
            if name.startswith("params/")
        }
        return _average(params, stored) if averaged else params


def open_run(folder: pathlib.Path) -> TrainedRun:
    """Opens a finished run; raises UserError where there is none, or it is not finished."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder.")
    config = read_json(folder / "config.json")
    if config is None:
        raise UserError(f"{folder}: not a run folder (no config.json).")
    summary = read_json(folder / "summary.json")
    if summary is None:
        raise UserError(
            f"{folder}: this run is not finished; its own command goes on with it: "
            f"{config['command']}"
        )
    if summary["status"] != "finished":
        raise UserError(f"{folder}: this run has not finished but {summary['status']}.")
    return TrainedRun(folder, config, summary)


def find_run(name: str, workdir: pathlib.Path, scale: str, seed: int) -> TrainedRun:
    """The finished run in a folder, or the one of an experiment in the working folder.

    Of several runs of an experiment at this scale, the only one with this seed is taken.

    Raises:
      UserError: there is none, or there are several; it says how to make one.
    """
    if (pathlib.Path(name) / "config.json").exists() or pathlib.Path(name).is_absolute():
        return open_run(pathlib.Path(name))
    found = []
    for path in sorted((workdir / name).glob(f"{scale}-*/summary.json")):
        if (summary := read_json(path)) and summary["status"] == "finished":
            found.append((path.parent, summary))
    if len(found) > 1:
        found = [(path, summary) for path, summary in found if summary["seed"] == seed] or found
    if len(found) > 1:
        several = ", ".join(path.name for path, _ in found[:5])
        raise UserError(
            f"init.run={name}: {workdir / name} has {len(found)} finished runs that could be meant "
            f"({several}). Give one: --set init.run={found[0][0]}"
        )
    if not found:
        make = f"--exp={name.partition('/')[0]} --scale={scale} --workdir={workdir}"
        raise UserError(
            f"init.run={name}: no such folder, and no finished run of it at {scale} scale in "
            f"{workdir}. Make one first: python -m experiments.launch {make}"
        )
    return open_run(found[0][0])


def parameters_digest(params: Flat) -> str:
    """SHA-256 over every parameter's path, type, shape and bytes."""
    digest = hashlib.sha256()
    for path in sorted(params):
        array = np.ascontiguousarray(params[path])
        digest.update(f"\n{path} {array.dtype} {array.shape}\n".encode())
        digest.update(array.view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def nested(flat: Flat) -> dict[str, Any]:
    """Turns paths back into nested dictionaries."""
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def _average(params: Flat, stored: Flat) -> Flat:
    """The average x that schedule-free answers with, of y = β₁ x + (1 − β₁) z."""
    beta = next(array for name, array in stored.items() if name.endswith("b1"))
    base = {name.partition("z/")[2]: array for name, array in stored.items() if "z/" in name}
    return {
        path: ((y - (1 - beta) * base[path]) / beta).astype(y.dtype) for path, y in params.items()
    }


def _read_part(folder: pathlib.Path, wanted: re.Pattern[str]) -> Flat:
    """Reads those arrays of a saved state whose names match, to the host."""
    handler = ocp.PyTreeCheckpointHandler()
    stored = [name for name in handler.metadata(folder).tree if wanted.search(name)]
    if not stored:
        raise ValueError("no parameters in it")
    to_numpy = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in stored}
    with ocp.Checkpointer(handler) as reader:
        return reader.restore(
            folder,
            args=ocp.args.PyTreeRestore(
                item=dict.fromkeys(stored, 0), restore_args=to_numpy, partial_restore=True
            ),
        )
