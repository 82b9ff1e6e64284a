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


def show(console: Console, by_task: Mapping[str, Sequence[Score]], protocol: Protocol) -> None:
    """Prints the scores with their baselines: mean over the seeds ± half its 95 % interval."""
    table = Table(
        title="Scores × 100: mean over seeds ± half the 95 % interval of the mean",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for name in ("task", "metric"):
        table.add_column(name, no_wrap=True)
    for name in ("last epoch", "best epoch", "majority", "words"):
        table.add_column(name, justify="right", no_wrap=True)
    for task, scores in by_task.items():
        for metric in dict.fromkeys(score["metric"] for score in scores):
            ours = [score for score in scores if score["metric"] == metric]
            table.add_row(
                task,
                metric,
                _shown([score["last"] for score in ours]),
                _shown([score["best"] for score in ours]),
                _hundredfold(ours[0].get("majority")),
                _hundredfold(ours[0].get("bag_of_words")),
            )
            if "test_last" in ours[0]:
                table.add_row(
                    "  test part",
                    metric,
                    _shown([score["test_last"] for score in ours]),
                    "",
                    _hundredfold(ours[0].get("test_majority")),
                    _hundredfold(ours[0].get("test_bag_of_words")),
                )
    console.print(table)
    console.print(
        "The best epoch is chosen on the very examples that it is scored on, so it flatters; "
        "words: a logistic regression over words."
    )
    for which in ("last", "best"):
        for name, values, parts in averages(protocol, by_task, which):
            console.print(f"{name}, {which} epoch: {_shown(values)}  (of: {parts})")
    if protocol.published_reading:
        console.print(f"The study itself reports: {protocol.published_reading}.")


def _shown(values: Sequence[float]) -> str:
    mean, half = summarise(values)
    return f"{100 * mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def _hundredfold(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
