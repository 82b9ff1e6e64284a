"""The page of one run."""

import json
import pathlib
from typing import Any

from experiments import report_text
from experiments.comparison import text
from experiments.comparison.arms import Arm
from experiments.comparison.notes import arm_warnings
from experiments.comparison.runs import LeftOut, Run, read_run
from experiments.report import charts, series
from experiments.report.page import write_page
from models.errors import UserError


def write_run(folder: pathlib.Path) -> pathlib.Path:
    """Writes `<folder>/report.html` and returns its path; raises UserError for an unusable run."""
    run = read_run(folder)
    if isinstance(run, LeftOut):
        raise UserError(f"{folder}: no report, {run.reason}.")
    palette = {"validation": charts.PALETTE[0], "training": charts.BASELINE}
    curves = series.loss_rows("training", [run], training=True)
    curves += series.loss_rows("validation", [run])
    times = series.time_rows("this run", [run])
    sparsity = series.sparsity_rows([run])
    experiment = run.config["experiment"]
    return write_page(
        folder / "report.html",
        "run.html",
        title=f"{run.exp}, {experiment['scale']} scale, {experiment['budget']}, seed {run.seed}",
        card=_card(run),
        palette=palette,
        loss=charts.loss_curves(curves, palette) if curves else None,
        time=charts.time_bars(times) if times else None,
        accounts={
            name: colour
            for name, colour in charts.ACCOUNTS.items()
            if any(row["account"] == name for row in times)
        },
        sparsity=charts.sparsity_bars(sparsity) if sparsity else None,
        rows=_figures(folder, run),
        before=text.duration(run.config["plan"].get("before_s", 0.0)),
        warnings=arm_warnings(Arm(run.exp, run.exp, run.config_hash, (run,))),
        stages=[_stage(stage) for stage in run.config["plan"]["stages"]],
        downstream=[
            (one.task, one.metric, str(one.seed), text.number(one.last, 4),
             text.number(one.best, 4), text.number(one.majority, 4))
            for one in run.downstream
        ],
        reference=(run.conditions.reference or "").removeprefix("here (").removesuffix(")"),
        command=run.config.get("command", "n/a"),
        started=run.config.get("started", "n/a"),
        commit=run.config.get("git_commit") or "not in a git tree",
        device=run.config.get("device", {}),
        host=run.config.get("host", {}),
        versions=run.config.get("versions", {}),
        configuration=json.dumps(experiment, indent=2),
    )  # fmt: skip


def _figures(folder: pathlib.Path, run: Run) -> list[tuple[str, str, str]]:
    if run.diverged_at is not None:
        return []
    try:
        return report_text.rows(run.summary)
    except KeyError as error:
        raise UserError(
            f"{folder}: no report, its summary.json is of another version (no {error})."
        ) from None


def _card(run: Run) -> dict[str, str]:
    if run.diverged_at is not None:
        return {
            "kind": "loss",
            "word": "Diverged",
            "who": f"at step {run.diverged_at:,} of {run.steps:,}: the loss is not finite",
            "why": "In a comparison this run counts as a loss.",
        }
    unigram = run.summary.get("validation", {}).get("unigram_nll")
    who = "nats a target token, validation loss at the end of the budget"
    why = "One run shows no gain. Three seeds and a baseline on the same budget do: "
    if unigram is not None:
        below = unigram - run.final_loss
        side = "below" if below >= 0 else "above"
        why = f"{abs(below):.3f} {side} a model that knows frequencies only. {why}"
    return {
        "kind": "none",
        "word": f"{run.final_loss:.4f}",
        "who": who,
        "why": why + "python -m experiments.compare.",
    }


def _stage(stage: dict[str, Any]) -> tuple[str, ...]:
    return (
        stage["name"],
        f"{100 * stage['start']:g} to {100 * stage['end']:g} %",
        f"{stage['steps']:,}",
        f"{1e3 * stage['seconds_per_step']:.4g}",
        text.duration(stage["steps"] * stage["seconds_per_step"]),
        ", ".join(_part(kind, one) for kind, one in stage.get("programs", {}).items()),
    )


def _part(kind: str, program: dict[str, Any]) -> str:
    """`forward 2 × 4.1 ms`: calls a step and what each is charged."""
    free = ", declared free" if program.get("free") else ""
    return f"{kind} {program['calls_per_step']:.4g} × {1e3 * program['seconds']:.4g} ms{free}"
