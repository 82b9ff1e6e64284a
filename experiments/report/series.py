"""Rows for the plots of a page, made from runs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.comparison.curves import Curve
from experiments.comparison.runs import Run

Row = dict[str, Any]


def loss_rows(arm: str, runs: Sequence[Run], training: bool = False) -> list[Row]:
    """Mean, lowest and highest loss over the seeds at each evaluation (or logged step)."""
    curves = [(run, run.training if training else run.validation) for run in runs]
    curves = [(run, curve) for run, curve in curves if len(curve)]
    rows: list[Row] = []
    for index in range(max((len(curve) for _, curve in curves), default=0)):
        there = [
            (run, curve)
            for run, curve in curves
            if index < len(curve) and math.isfinite(curve.loss[index])
        ]
        if not there:
            continue
        losses = [float(curve.loss[index]) for _, curve in there]
        rows.append(
            {
                "arm": arm,
                "loss": float(np.mean(losses)),
                "low": min(losses),
                "high": max(losses),
                "seeds": len(losses),
                **_where(there, index),
            }
        )
    return rows


def _where(there: Sequence[tuple[Run, Curve]], index: int) -> Row:
    """How far the runs had come, on every axis, on average."""
    steps = [float(curve.step[index]) for _, curve in there]
    tokens, wall = [], []
    for (run, _), step in zip(there, steps, strict=True):
        share = step / run.steps
        tokens.append(share * run.summary.get("tokens", math.nan))
        # Training time is spread evenly over the steps; runs log no clock of their own.
        wall.append(share * run.summary.get("seconds", {}).get("train", math.nan))
    return {
        "step": float(np.mean(steps)),
        "rst_s": float(np.mean([curve.rst_s[index] for _, curve in there])),
        "tokens": _finite(float(np.mean(tokens))),
        "wall_s": _finite(float(np.mean(wall))),
    }


def time_rows(arm: str, runs: Sequence[Run]) -> list[Row]:
    """Mean wall seconds of every account."""
    spent = [run.summary["seconds"] for run in runs if "seconds" in run.summary]
    accounts = list(dict.fromkeys(name for seconds in spent for name in seconds))
    means = {name: float(np.mean([s.get(name, 0.0) for s in spent])) for name in accounts}
    total = sum(means.values())
    shown = [name for name in accounts if means[name] > 0]
    return [
        {
            "arm": arm,
            "account": name,
            "seconds": means[name],
            "share": means[name] / total,
            "first": name == shown[0],
        }
        for name in shown
    ]


def sparsity_rows(runs: Sequence[Run]) -> list[Row]:
    """Mean sparsity of every pruned parameter over the seeds."""
    found = [run.summary["sparsity"] for run in runs if run.summary.get("sparsity")]
    if not found:
        return []
    return [
        {
            "path": path,
            "reached": float(np.mean([one["by_path"][path]["reached"] for one in found])),
            "asked": about["asked"],
            "weights": about["size"],
        }
        for path, about in found[0]["by_path"].items()
        if all(path in one["by_path"] for one in found)
    ]


def profile_rows(method: str, ratios: Sequence[float], end: float) -> list[Row]:
    """The corners of a performance profile from 0 to `end`."""
    finite = sorted(value for value in ratios if value <= end)
    rows = [{"method": method, "tau": 0.0, "share": 0.0}]
    for count, value in enumerate(finite, 1):
        rows.append({"method": method, "tau": value, "share": count / len(ratios)})
    rows.append({"method": method, "tau": end, "share": len(finite) / len(ratios)})
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
