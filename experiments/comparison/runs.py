"""Run folders as they are read for a comparison: nothing is dropped in silence."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from experiments.budget import parse_budget
from experiments.comparison.curves import Curve, Damaged, read_curves
from experiments.comparison.downstream import Score, read_scores
from models.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """What two runs must share for their losses to be comparable; None where a run does not say."""

    scale: str
    # "60 s" or "2000 steps", however it was written.
    budget: str
    # Digest of the prepared data.
    data: str | None
    # How many examples the validation has, and what a unigram model makes of them.
    evaluation_set: str | None
    # Digest of the validation batches, masks included.
    evaluation_batches: str | None = None
    # Digest of the vocabulary; "none" for images.
    tokenizer: str | None
    # The device in whose seconds the budget counts.
    reference: str | None

    def differences(self, other: "Conditions") -> list[str]:
        """`budget: 60 s against 90 s` for every condition that both state and that differs."""
        found = []
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is not None and theirs is not None and mine != theirs:
                name = field.name.replace("_", " ")
                found.append(f"{name}: {_short(mine)} against {_short(theirs)}")
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One finished or diverged run."""

    folder: pathlib.Path
    exp: str
    seed: int
    config_hash: str
    conditions: Conditions
    # Validation loss at the end of the budget, nats per target; infinite where the run diverged.
    final_loss: float
    # Step at which a loss was not finite; None for a run that reached its end.
    diverged_at: int | None
    validation: Curve
    training: Curve
    config: dict[str, Any]
    summary: dict[str, Any]
    downstream: tuple[Score, ...] = ()

    @property
    def budget_is_time(self) -> bool:
        return parse_budget(self.config["experiment"]["budget"]).unit == "seconds"

    @property
    def rst_s(self) -> float:
        """Reference-system seconds that the whole budget comes to."""
        plan = self.config["plan"]
        stages = plan["stages"]
        # What was charged ahead of the first step, such as a proxy model's training.
        before_s: float = plan.get("before_s", 0.0)
        return before_s + sum(stage["steps"] * stage["seconds_per_step"] for stage in stages)

    @property
    def steps(self) -> int:
        return sum(stage["steps"] for stage in self.config["plan"]["stages"])

    @property
    def is_proxy(self) -> bool:
        """Whether it was trained on held-out data, for another run's selection."""
        data: dict[str, Any] = self.config["experiment"].get("data", {})
        return data.get("train_part") == "held_out"


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A folder that is no part of the comparison, and why."""

    folder: pathlib.Path
    reason: str


def run_folders(paths: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Every run folder at or below the paths.

    Raises:
      UserError: a path does not exist, or holds no run.
    """
    found: dict[pathlib.Path, None] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such folder.")
        here = sorted(_below(path))
        if not here:
            raise UserError(
                f"{path}: holds no run (no folder with a config.json). Give the --workdir of runs."
            )
        found |= dict.fromkeys(folder.resolve() for folder in here)
    return list(found)


def _below(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Run folders at most three levels down, without looking into their checkpoints."""
    levels = [path]
    for _ in range(4):
        deeper = []
        for folder in levels:
            if (folder / "config.json").exists() or (folder / "metrics.jsonl").exists():
                yield folder
            elif folder.is_dir():
                deeper += [inner for inner in folder.iterdir() if inner.is_dir()]
        levels = deeper


def read_runs(paths: Iterable[pathlib.Path]) -> tuple[list[Run], list[LeftOut]]:
    """Reads every run below the paths; those that cannot be used are returned with the reason."""
    runs, left_out = [], []
    for folder in run_folders(paths):
        read = read_run(folder)
        if isinstance(read, LeftOut):
            left_out.append(read)
        elif read.is_proxy:
            left_out.append(LeftOut(folder, "a proxy of other runs, trained on held-out data"))
        else:
            runs.append(read)
    kept, twice = _one_of_each_seed(runs)
    return kept, left_out + twice


def read_run(folder: pathlib.Path) -> Run | LeftOut:
    """Reads one run folder, whatever its state."""
    try:
        config = _object(folder / "config.json")
        summary = _object(folder / "summary.json")
        failure = _object(folder / "failure" / "failure.json")
        if config is None:
            return LeftOut(folder, "damaged: no config.json")
        validation, training = read_curves(folder / "metrics.jsonl")
        if summary is None and failure is None:
            last = int(training.step[-1]) if len(training) else 0
            return LeftOut(
                folder, f"unfinished: no summary yet, last logged step {last:,}; start it again"
            )
        return _run(folder, config, summary or {}, failure, validation, training)
    except (KeyError, TypeError, AttributeError) as error:
        return LeftOut(folder, f"of another version: {_missing(error)}")
    except (Damaged, UserError, OSError, ValueError) as error:
        return LeftOut(folder, f"damaged: {error}")


def _run(
    folder: pathlib.Path,
    config: dict[str, Any],
    summary: dict[str, Any],
    failure: dict[str, Any] | None,
    validation: Curve,
    training: Curve,
) -> Run | LeftOut:
    experiment = config["experiment"]
    diverged_at = _diverged_at(summary, failure, validation)
    if diverged_at is None:
        if summary["status"] != "finished":
            return LeftOut(folder, f"its status is {summary['status']}, not finished")
        final_loss = _final_loss(summary["final"])
        if not len(validation):
            return LeftOut(folder, "damaged: metrics.jsonl holds no validation")
    else:
        final_loss = math.inf
    run = Run(
        folder=folder,
        exp=experiment["name"],
        seed=int(experiment["seed"]),
        config_hash=config["config_hash"],
        conditions=_conditions(config, summary),
        final_loss=final_loss,
        diverged_at=diverged_at,
        validation=validation,
        training=training,
        config=config,
        summary=summary,
        downstream=read_scores(folder / "downstream"),
    )
    _check_shape(run)
    return run


def _check_shape(run: Run) -> None:
    """Raises, so that files of another version are noticed here and not by a page."""
    _ = run.rst_s, run.budget_is_time
    if run.steps < 1:
        raise Damaged("config.json (it plans no step)")
    if not all(np.isfinite(curve.rst_s).all() for curve in (run.validation, run.training)):
        raise Damaged("metrics.jsonl (a line without reference time)")
    for name in ("seconds", "params", "flops"):
        if not isinstance(run.summary.get(name, {}), dict):
            raise Damaged(f"summary.json ({name} is not an object)")
    if sparsity := run.summary.get("sparsity"):
        _ = [(one["reached"], one["asked"], one["size"]) for one in sparsity["by_path"].values()]


def _diverged_at(
    summary: dict[str, Any], failure: dict[str, Any] | None, validation: Curve
) -> int | None:
    """The step of the first loss that is not finite; None for a sound run."""
    if summary.get("status") == "diverged":
        return int(summary.get("step") or summary.get("steps") or 0)
    if not summary and failure is not None:
        return int(failure["step"])
    bad = np.flatnonzero(~np.isfinite(validation.loss))
    if len(bad):
        return int(validation.step[bad[0]])
    if summary and not math.isfinite(_final_loss(summary["final"])):
        return int(summary["steps"])
    return None


def _final_loss(final: dict[str, Any]) -> float:
    """The plain cross-entropy where there is one, else what was trained on (a squared error)."""
    return float(final["nll"] if "nll" in final else final["loss"])


def _conditions(config: dict[str, Any], summary: dict[str, Any]) -> Conditions:
    experiment = config["experiment"]
    budget = parse_budget(experiment["budget"])
    validation = summary.get("validation") or config.get("validation") or {}
    evaluation = None
    if "examples" in validation:
        evaluation = f"{validation['examples']} examples, unigram {validation['unigram_nll']:.6f}"
    reference = config["reference"]["name"]
    if reference == "here":
        device = config["device"]
        reference = (
            f"here ({device['kind']} × {device['count']}, {device['processors']} processors)"
        )
    if config.get("account", "rst") != "rst":
        reference += f", charged by {config['account']} time"
    return Conditions(
        scale=experiment["scale"],
        budget=f"{budget.amount:g} {'s' if budget.unit == 'seconds' else budget.unit}",
        data=config["data"]["digest"],
        evaluation_set=evaluation,
        evaluation_batches=validation.get("digest"),
        tokenizer=summary.get("vocabulary"),
        reference=reference,
    )


def _one_of_each_seed(runs: list[Run]) -> tuple[list[Run], list[LeftOut]]:
    """Keeps, of runs that are the same but for their folder, the one that was started first.

    By its start and never by its result: a choice among results would be a choice of luck.
    """
    kept: dict[Any, Run] = {}
    left_out = []
    for run in sorted(runs, key=lambda run: (run.config.get("started", ""), str(run.folder))):
        key = (run.exp, run.config_hash, run.conditions, run.seed)
        if first := kept.get(key):
            reason = (
                f"seed {run.seed} of {run.exp} is there twice; the one started first is used, "
                f"{first.folder} (final losses {first.final_loss:.4f} there, "
                f"{run.final_loss:.4f} here)"
            )
            left_out.append(LeftOut(run.folder, reason))
        else:
            kept[key] = run
    order = {id(run): index for index, run in enumerate(runs)}
    return sorted(kept.values(), key=lambda run: order[id(run)]), left_out


def _object(path: pathlib.Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Damaged(f"{path.name} ({error})") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path.name} (not a JSON object)")
    return value


def _missing(error: Exception) -> str:
    return f"no {error.args[0]!r} in it" if isinstance(error, KeyError) else str(error)


def _short(text: str) -> str:
    """Digests are told apart by their first digits."""
    return text[:8] if len(text) == 64 else text
