"""Scores on downstream tasks that a run folder holds beside its losses."""

import dataclasses
import json
import math
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Score:
    """One fine-tuning of one task: the metric after its last epoch, not the best one.

    On the test part where the task has one, else on the validation part.
    """

    task: str
    metric: str
    seed: int
    # NaN where the file does not give a number.
    last: float
    best: float
    majority: float


def read_scores(folder: pathlib.Path) -> tuple[Score, ...]:
    """The scores in `<folder>/*.json`, each a list of results or one; damaged files give NaN."""
    scores: list[Score] = []
    for path in sorted(folder.glob("*.json")):
        try:
            found: Any = json.loads(path.read_text())
        except (OSError, ValueError):
            scores.append(Score(path.stem, "damaged file", 0, math.nan, math.nan, math.nan))
            continue
        for result in found if isinstance(found, list) else [found]:
            scores.append(_score(path.stem, result if isinstance(result, dict) else {}))
    return tuple(scores)


def _score(task: str, result: dict[str, Any]) -> Score:
    def number(*names: str) -> float:
        value = next((result[name] for name in names if name in result), None)
        return float(value) if isinstance(value, int | float) else math.nan

    return Score(
        task=str(result.get("task", task)),
        metric=str(result.get("metric", "score")),
        seed=int(number("seed")) if math.isfinite(number("seed")) else 0,
        last=number("test_last", "last"),
        best=number("best"),
        majority=number("test_majority", "majority"),
    )
