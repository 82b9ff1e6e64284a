"""The folder that a run leaves behind, and the rules for starting, resuming and refusing."""

import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import Any, TextIO

from experiments.config import Experiment, config_hash, same_configuration, to_json
from experiments.distributed import SHARED_MARK, check_shared, from_first, is_first, on_first
from experiments.tracking import Writer, open_writers
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
        self._experiment = experiment
        self._log: tuple[TextIO, list[Writer]] | None = None
        self._own_profile: tempfile.TemporaryDirectory[str] | None = None

    @property
    def profile(self) -> pathlib.Path:
        """Where the trace goes; those of other processes than the first are not kept."""
        if is_first():
            return self.path / "profile"
        if self._own_profile is None:
            self._own_profile = tempfile.TemporaryDirectory(prefix="kpd-trace-")
        return pathlib.Path(self._own_profile.name)

    def open(self, force: bool) -> None:
        """Makes the folder, or takes up the one of an interrupted run; the first process does.

        Raises:
          UserError: the folder cannot be written, holds a finished run (and not `force`), or was
            made by another configuration, or is not the same folder on all hosts.
        """
        on_first(lambda: self._open(force))
        check_shared(self.path)

    def _open(self, force: bool) -> None:
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
            final = summary["final"]
            raise UserError(
                f"{self.path}: this run is finished (loss {final.get('nll', final['loss']):.4f}). "
                "Give --force to run it anew, or another --seed."
            )
        if summary and summary["status"] == "diverged":
            raise UserError(
                f"{self.path}: this run diverged at step {summary['step']}. Give --force to run it "
                "anew, or a lower optimizer.peak_learning_rate."
            )
        config = read_json(self.path / "config.json")
        if config and not same_configuration(config["experiment"], to_json(self._experiment)):
            raise UserError(
                f"{self.path}: config.json is of another configuration "
                f"({_first_difference(config['experiment'], to_json(self._experiment))}). "
                "Give another --workdir, or --force to run anew."
            )
        files = (file for file in self.path.iterdir() if not file.name.startswith(SHARED_MARK))
        if config is None and any(files):
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
        if is_first():
            write_json(self.path / "config.json", config)
        return from_first(config)

    def read_config(self) -> dict[str, Any] | None:
        """config.json as the first process finds it; None for a new run."""
        return on_first(lambda: read_json(self.path / "config.json"))

    def log(self, split: str, step: int, values: dict[str, float]) -> None:
        """Adds one line to metrics.jsonl and gives the same numbers to every tracker."""
        if not is_first():
            return
        if self._log is None:
            self._log = (
                open(self.path / "metrics.jsonl", "a"),  # noqa: SIM115 (kept open)
                open_writers(self.path, self._experiment.name, _facts(self._experiment)),
            )
        lines, writers = self._log
        lines.write(json.dumps({"step": step, "split": split, **values}) + "\n")
        lines.flush()
        for writer in writers:
            writer.log(split, step, values)

    def drop_metrics_after(self, step: int) -> None:
        """Takes back the lines of steps that a resumed run will make again."""
        path = self.path / "metrics.jsonl"
        if not path.exists() or not is_first():
            return
        kept = []
        for line in path.read_text().splitlines():
            # A kill can leave half a line at the end.
            if line.endswith("}") and json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        _write_text(path, "".join(kept))

    def write_summary(self, summary: dict[str, Any]) -> None:
        if is_first():
            write_json(self.path / "summary.json", summary)

    def close(self) -> None:
        if self._log is not None:
            lines, writers = self._log
            lines.close()
            for writer in writers:
                writer.close()
            self._log = None
        if self._own_profile is not None:
            self._own_profile.cleanup()
            self._own_profile = None


def _facts(experiment: Experiment) -> dict[str, Any]:
    """The configuration as dotted paths, for trackers."""

    def flat(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {path: value}
        inner = (flat(part, f"{path}.{name}" if path else name) for name, part in value.items())
        return {key: leaf for part in inner for key, leaf in part.items()}

    return flat(to_json(experiment), "")


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
