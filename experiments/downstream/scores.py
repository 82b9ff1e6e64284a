"""Scores of fine-tuning: read from its runs, kept beside the pre-training run, shown as a table."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from experiments.downstream.protocols import Protocol, summarise
from experiments.downstream.registry import DIGITS, find_task
from experiments.run_folder import write_json
from models.errors import UserError

# One score: {task, metric, seed, last, best, …}; `metric` of the headline comes first.
Score = dict[str, Any]


def scores_of_run(
    folder: Path, task: str, seed: int, baselines: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[Score]:
    """Reads a finished fine-tuning run: a score for each metric, of the last and the best epoch.

    The best epoch is the one with the best headline on the validation part, as some studies read
    it; where there is a test part, its score is that of the last epoch.
    """
    metrics = ("accuracy",) if task == DIGITS else find_task(task).metrics
    epochs = [
        entry
        for line in (folder / "metrics.jsonl").read_text().splitlines()
        if (entry := json.loads(line))["split"] == "validation"
    ]
    if not epochs:
        raise UserError(f"{folder}: has no evaluation.")
    best = max(range(len(epochs)), key=lambda index: epochs[index][metrics[0]])
    scores = []
    for metric in metrics:
        score: Score = {
            "task": task,
            "metric": metric,
            "seed": seed,
            "last": epochs[-1][metric],
            "best": epochs[best][metric],
            "best_epoch": best + 1,
            "epochs": len(epochs),
            **facts,
        }
        for split, prefix in (("validation", ""), ("test", "test_")):
            for name, found in baselines.get(split, {}).items():
                score[f"{prefix}{name}"] = None if found is None else found[metric]
        if f"test_{metric}" in epochs[-1]:
            score["test_last"] = epochs[-1][f"test_{metric}"]
        scores.append(score)
    return scores


def write_scores(folder: Path, task: str, scores: Sequence[Score]) -> Path:
    """Writes `<task>.json` into the folder and returns its path."""
    path = folder / f"{task.replace('/', '_')}.json"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, list(scores))
    return path


def read_scratch(folder: Path, by_task: Mapping[str, Sequence[Score]]) -> dict[str, list[Score]]:
    """Reads the scores of random weights that were fine-tuned under the same settings as these."""
    found = {}
    for task, scores in by_task.items():
        path = folder / f"{task.replace('/', '_')}.json"
        if path.is_file():
            settings = {score["settings"] for score in scores}
            known: list[Score] = json.loads(path.read_text())
            found[task] = [score for score in known if score.get("settings") in settings]
    return {task: scores for task, scores in found.items() if scores}


def averages(
    protocol: Protocol, by_task: Mapping[str, Sequence[Score]], which: str
) -> list[tuple[str, list[float], str]]:
    """Returns (name, value of each seed, what is in it) of the averages that are complete."""
    seeds = sorted({score["seed"] for scores in by_task.values() for score in scores})
    found = []
    for average in protocol.averages:
        values = []
        for seed in seeds:
            ours = {
                (task, score["metric"]): score[which]
                for task, scores in by_task.items()
                for score in scores
                if score["seed"] == seed
            }
            value = average.of(ours)
            if value is not None:
                values.append(value)
        if values:
            parts = ", ".join(
                f"{task.rpartition('/')[2]} {metric}" for task, metric in average.parts
            )
            found.append((average.name, values, parts))
    return found


def show(
    console: Console,
    by_task: Mapping[str, Sequence[Score]],
    protocol: Protocol,
    scratch: Mapping[str, Sequence[Score]] | None = None,
) -> None:
    """Prints the scores with their baselines: mean over the seeds ± half its 95 % interval.

    `scratch` are scores of random weights, which get a column if there are any.
    """
    suites = dict.fromkeys(task.partition("/")[0] for task in by_task)
    table = Table(
        title=f"{', '.join(suites)}: scores × 100, mean over seeds ± half its 95 % interval",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for name in ("task", "metric"):
        table.add_column(name, no_wrap=True)
    beside = ["from scratch"] if scratch else []
    for name in ("last epoch", "best epoch", *beside, "majority", "words"):
        table.add_column(name, justify="right", no_wrap=True)
    for task, scores in by_task.items():
        shown = task.rpartition("/")[2] if len(suites) == 1 else task
        for metric in dict.fromkeys(score["metric"] for score in scores):
            ours = [score for score in scores if score["metric"] == metric]
            theirs = [s for s in (scratch or {}).get(task, ()) if s["metric"] == metric]
            for part, prefix in ((shown, ""), ("  test part", "test_")):
                if f"{prefix}last" not in ours[0]:
                    continue
                table.add_row(
                    part,
                    metric,
                    _shown([score[f"{prefix}last"] for score in ours]),
                    "" if prefix else _shown([score["best"] for score in ours]),
                    *([_shown([s[f"{prefix}last"] for s in theirs])] if scratch else []),
                    _hundredfold(ours[0].get(f"{prefix}majority")),
                    _hundredfold(ours[0].get(f"{prefix}bag_of_words")),
                )
    console.print(table)
    console.print(
        "The best epoch is chosen on the very examples that it is scored on, so it flatters; "
        "words: a logistic regression over words"
        + ("; from scratch: random weights, last epoch." if scratch else ".")
    )
    for which in ("last", "best"):
        for name, values, parts in averages(protocol, by_task, which):
            console.print(f"{name}, {which} epoch: {_shown(values)}  (of: {parts})")
    if protocol.published_reading:
        console.print(f"The study itself reports: {protocol.published_reading}.")


def _shown(values: Sequence[float]) -> str:
    if not values:
        return ""
    mean, half = summarise(values)
    return f"{100 * mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def _hundredfold(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
