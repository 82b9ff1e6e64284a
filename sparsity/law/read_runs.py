"""Reads measured points from a folder of finished runs."""

import json
import pathlib
from typing import Any

import numpy as np

from models.errors import UserError
from sparsity.law.points import UNSTRUCTURED, Points, check


def read_runs(folder: pathlib.Path) -> Points:
    """Reads every finished run below a folder (summary.json and config.json) as one set of points.

    S and the pattern are what the run's pruning aimed at, N the weights outside embeddings that are
    left, D the tokens (or images) trained on, the loss the validation cross-entropy. Runs that
    started from trained weights are left out: their D is not all that they have seen. Raises
    UserError where there is no finished run, one is damaged or lacks a field, or runs were trained
    on different data.
    """
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: no such folder.")
    paths = sorted(folder.rglob("summary.json"))
    summaries = {path: _load(path) for path in paths}
    finished = {path: run for path, run in summaries.items() if run.get("status") == "finished"}
    finished = {path: run for path, run in finished.items() if run.get("init") is None}
    if not finished:
        raise UserError(
            f"--runs={folder}: {len(paths)} summary.json below it, none of a run that has finished "
            "and was trained from scratch."
        )
    _check_same_data(folder, finished)
    rows = [_point(path, run) for path, run in finished.items()]
    sparsity, size, data, loss, pattern = zip(*rows, strict=True)
    points = Points(
        name=folder.resolve().name,
        data_unit="tokens",
        sparsity=np.array(sparsity),
        size=np.array(size),
        data=np.array(data),
        loss=np.array(loss),
        pattern=np.array(pattern),
        origin=tuple(map(str, finished)),
    )
    check(points)
    return points


def _point(path: pathlib.Path, summary: dict) -> tuple[float, float, float, float, str]:
    # The sparsity in the summary counts embeddings, which are pruned less; the law's S does not.
    config_path = path.with_name("config.json")
    pruning = _field(config_path, _load(config_path), "experiment", "pruning")
    sparsity, pattern = 0.0, UNSTRUCTURED
    if pruning is not None and _field(config_path, pruning, "rule") != "none":
        sparsity = _number(config_path, pruning, "sparsity")
        pattern = str(_field(config_path, pruning, "pattern"))
    return (
        sparsity,
        _number(path, summary, "params", "nonzero_without_embedding"),
        _number(path, summary, "tokens"),
        _number(path, summary, "final", "nll"),
        pattern,
    )


def _number(path: pathlib.Path, content: dict, *keys: str) -> float:
    value = _field(path, content, *keys)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{path}: {'.'.join(keys)} is {value!r}, not a number.")
    return float(value)


def _field(path: pathlib.Path, content: Any, *keys: str) -> Any:
    for key in keys:
        if not isinstance(content, dict) or key not in content:
            raise UserError(f"{path}: no field {'.'.join(keys)}, so the law cannot use this run.")
        content = content[key]
    return content


def _load(path: pathlib.Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: missing, so what this run aimed at is not known.") from None
    except ValueError as error:
        raise UserError(
            f"{path}: damaged ({error}). Move it away or make that run again."
        ) from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: not a JSON object, so not of a run. Move it away.")
    return content


def _check_same_data(folder: pathlib.Path, runs: dict[pathlib.Path, dict]) -> None:
    first, *others = runs
    for path in others:
        if runs[path].get("data") != runs[first].get("data"):
            raise UserError(
                f"--runs={folder}: {path.parent.name} was trained on other data than "
                f"{first.parent.name}; give a folder of one study."
            )
