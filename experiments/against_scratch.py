"""Runs that started from trained weights beside runs from scratch of equal cost."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from experiments.config import Experiment
from experiments.costs import total_cost

Made = tuple[Experiment, dict[str, Any]]


def against_scratch(made: Sequence[Made]) -> Table | None:
    """Compares each run that started from weights with those from scratch; None without any.

    `made` are experiments and their summaries. Equal cost is as many tokens of the same network
    pruned alike: once those of the run itself, once with those that its weights had taken before.
    """
    rows = []
    for experiment, summary in made:
        if experiment.init is None or summary.get("status") != "finished":
            continue
        cost = total_cost(summary)
        for counted, tokens in (
            ("not counted", summary["tokens"]),
            ("counted", cost["tokens"] if cost else None),
        ):
            other = _from_scratch(made, experiment, tokens)
            if other is not None:
                rows.append(_row(experiment, summary, counted, other))
    if not rows:
        return None
    table = Table(title="from trained weights against from scratch, at equal cost, one run each")
    for column in (
        "run",
        "training before",
        "loss",
        "from scratch",
        "difference",
        "reference s",
        "FLOPs, zeros computed",
        "zeros skipped",
    ):
        table.add_column(
            column, justify="left" if column in ("run", "training before") else "right"
        )
    for row in rows:
        table.add_row(*row)
    return table


def _from_scratch(
    made: Sequence[Made], experiment: Experiment, tokens: int | None
) -> dict[str, Any] | None:
    for other, summary in made:
        same = (other.model, other.pruning, other.seed, other.data) == (
            experiment.model,
            experiment.pruning,
            experiment.seed,
            experiment.data,
        )
        if same and other.init is None and summary.get("tokens") == tokens is not None:
            return summary
    return None


def _row(
    experiment: Experiment, summary: dict[str, Any], counted: str, other: dict[str, Any]
) -> tuple[str, ...]:
    cost = total_cost(summary) if counted == "counted" else summary
    assert cost is not None
    loss, scratch = summary["final"]["nll"], other["final"]["nll"]
    seconds = "?" if cost["rst_s"] is None else f"{cost['rst_s']:.1f}"

    def both(ours: str, theirs: str) -> str:
        return f"{ours} : {theirs}"

    return (
        experiment.name,
        counted,
        f"{loss:.4f}",
        f"{scratch:.4f}",
        f"{loss - scratch:+.4f}",
        both(seconds, f"{other['rst_s']:.1f}"),
        *(
            both(f"{cost['flops'][name]:.2e}", f"{other['flops'][name]:.2e}")
            for name in ("dense", "ideal")
        ),
    )
