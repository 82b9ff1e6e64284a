"""The folder that a run leaves behind, and the rules for starting, resuming and refusing."""

import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Any, TextIO

from tensorboardX import SummaryWriter

from experiments.config import Experiment, config_hash, to_json
from models.errors import UserError

_PACKAGES = ("kpd", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


class RunFolder:
    """`<workdir>/<exp>/<scale>-<budget>-s<seed>-<config hash>/` and the files in it."""

    def __init__(self, workdir: pathlib.Path, experiment: Experiment):
        name = (
            f"{experiment.scale}-{experiment.budget}-s{experiment.seed}-{config_hash(experiment)}"
        )
        self.workdir = workdir
        self.path = workdir / experiment.name / name
        self.checkpoints = self.path / "checkpoints"
        self.profile = self.path / "profile"
        self._experiment = experiment
        self._log: tuple[TextIO, SummaryWriter] | None = None

    def open(self, force: bool) -> None:
        """Makes the folder, or takes up the one of an interrupted run.

        Raises:
          UserError: the folder cannot be written, holds a finished run (and not `force`), or was
            made by another configuration.
        """
        try:
            if force and self.path.exists():
                shutil.rmtree(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ".writable").touch()
            (self.path / ".writable").unlink()
        except OSError as error:
            raise UserError(
                f"--workdir {self.workdir}: cannot write there ({error.strerror or error})."
            ) from None
        summary = read_json(self.path / "summary.json")
        if summary and summary["status"] == "finished":
            raise UserError(
                f"{self.path}: this run is finished (loss {summary['final'].get('loss', 'n/a')}). "
                "Give --force to run it anew, or another --seed."
            )
        config = read_json(self.path / "config.json")
        if config and config["experiment"] != json.loads(json.dumps(to_json(self._experiment))):
            raise UserError(
                f"{self.path}: config.json is of another configuration "
                f"({_first_difference(config['experiment'], to_json(self._experiment))}). "
                "Give another --workdir, or --force to run anew."
            )
        if any(self.path.iterdir()) and config is None:
            raise UserError(
                f"{self.path}: not a run folder (no config.json). Give another --workdir."
            )

    def write_config(self, details: dict[str, Any]) -> dict[str, Any]:
        """Writes config.json, the operative configuration and what it runs on; returns it."""
        config = {
            "experiment": to_json(self._experiment),
            "config_hash": config_hash(self._experiment),
            "command": " ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "git_commit": _git_commit(),
            "versions": _versions(),
            "host": {
                "name": platform.node(),
                "system": platform.platform(),
                "processors": os.cpu_count(),
            },
            **details,
        }
        write_json(self.path / "config.json", config)
        return config

    def log(self, split: str, step: int, values: dict[str, float]) -> None:
        """Adds one line to metrics.jsonl and the same numbers to the TensorBoard events."""
        if self._log is None:
            self._log = (
                open(self.path / "metrics.jsonl", "a"),  # noqa: SIM115 (kept open)
                SummaryWriter(str(self.path), filename_suffix=".kpd"),
            )
        lines, tensorboard = self._log
        lines.write(json.dumps({"step": step, "split": split, **values}) + "\n")
        lines.flush()
        for name, value in values.items():
            tensorboard.add_scalar(f"{split}/{name}", value, step)

    def drop_metrics_after(self, step: int) -> None:
        """Takes back the lines of steps that a resumed run will make again."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return
        kept = []
        for line in path.read_text().splitlines():
            # A kill can leave half a line at the end.
            if line.endswith("}") and json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        _write_text(path, "".join(kept))

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_json(self.path / "summary.json", summary)

    def close(self) -> None:
        if self._log is not None:
            for log in self._log:
                log.close()
            self._log = None


def read_json(path: pathlib.Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is no file; UserError where it is damaged."""
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON ({error}); move it away.") from None


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON object so that a reader sees the old file or the whole new one."""
    _write_text(path, json.dumps(value, indent=2) + "\n")


def _write_text(path: pathlib.Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def _first_difference(left: Any, right: Any, path: str = "") -> str:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted(set(left) | set(right)):
            if left.get(name) != right.get(name):
                return _first_difference(left.get(name), right.get(name), f"{path}.{name}")
    return f"{path.lstrip('.')}: {left!r} there, {right!r} asked for"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        versions[package] = metadata.version(package)
    return versions


def _git_commit() -> str | None:
    """The commit of the source tree, with `+changes` where it has some; None outside of git."""
    root = pathlib.Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
