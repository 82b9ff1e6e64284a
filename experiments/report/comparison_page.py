"""The page of a comparison."""

import math
import pathlib
import sys
from typing import Any

from experiments.comparison import text
from experiments.comparison.arms import Arm
from experiments.comparison.compare import Block, Comparison, Result, short_name
from experiments.comparison.profile import WORST_RATIO
from experiments.report import charts, series, verdicts
from experiments.report.page import write_page


def write_comparison(path: pathlib.Path, comparison: Comparison) -> pathlib.Path:
    """Writes the page of a comparison; returns its path."""
    coverage = 100 - 100 * comparison.options.level
    cards = [
        [verdicts.card(block, result, coverage) for result in block.results]
        for block in comparison.blocks
    ]
    palette = _palette(comparison)
    blocks = [
        _block(number, block, comparison, palette)
        for number, block in enumerate(comparison.blocks, 1)
    ]
    return write_page(
        path,
        "comparison.html",
        title=verdicts.question(comparison),
        asked=verdicts.asked(comparison),
        answer=verdicts.answer(comparison),
        cards=cards,
        matrix=verdicts.matrix(comparison, cards) if len(blocks) > 1 else None,
        blocks=blocks,
        profile=_profile(comparison, palette),
        warnings=list(text.warnings(comparison)),
        not_compared=list(text.not_compared(comparison)),
        level=f"{100 * comparison.options.level:g}",
        coverage=f"{coverage:g}",
        power=f"{100 * comparison.options.power:g}",
        margin=str(comparison.options.margin),
        command=" ".join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]),
    )


def _palette(comparison: Comparison) -> dict[str, str]:
    """A colour for each method by its short name, the same at every budget and workload."""
    names = {short_name(r.method.label) for block in comparison.blocks for r in block.results}
    return charts.colours(sorted(names))


def _block(
    number: int, block: Block, comparison: Comparison, colours: dict[str, str]
) -> dict[str, Any]:
    arms = [block.baseline, *(result.method for result in block.results)]
    palette = {block.baseline.label: charts.BASELINE}
    palette |= {r.method.label: colours[short_name(r.method.label)] for r in block.results}
    curves = [row for arm in arms for row in series.loss_rows(arm.label, arm.runs)]
    times = [row for arm in arms for row in series.time_rows(arm.label, arm.runs)]
    intervals = [_interval(result) for result in block.results if result.estimate]
    margin = block.margin.loss if block.margin.known else None
    sparsity = {arm.label: series.sparsity_rows(arm.runs) for arm in arms}
    first = block.baseline.runs[0]
    return {
        "number": number,
        "heading": f"{block.baseline.label}, {verdicts.budget(block.baseline)}",
        "palette": palette,
        "loss": charts.loss_curves(curves, palette),
        "difference": charts.differences(intervals, palette, margin) if intervals else None,
        "time": charts.time_bars(times) if times else None,
        "accounts": {
            name: colour
            for name, colour in charts.ACCOUNTS.items()
            if any(row["account"] == name for row in times)
        },
        "sparsity": {label: charts.sparsity_bars(rows) for label, rows in sparsity.items() if rows},
        "figures": [_figures(result) for result in block.results],
        "worth": [
            (r.method.label, text.speedup_text(block, r), text.time_text(block, r))
            for r in block.results
        ],
        "cost": [_cost(arm) for arm in arms],
        "downstream": [row for result in block.results for row in _downstream(result)],
        "runs": [_run(arm.label, run) for arm in arms for run in arm.runs],
        "baseline_loss": text.number(block.mean_loss, 4),
        "margin": block.margin.how,
        "paired": _pairing(block),
        "conditions": _conditions(block.baseline),
        "commands": {arm.label: arm.runs[0].config.get("command", "n/a") for arm in arms},
        "versions": ", ".join(f"{k} {v}" for k, v in first.config.get("versions", {}).items()),
        "device": _device(first.config.get("device", {})),
    }


def _interval(result: Result) -> dict[str, Any]:
    assert result.estimate is not None
    low, high = result.t_interval
    boot_low, boot_high = result.bootstrap
    return {
        "arm": result.method.label,
        "verdict": str(result.verdict.kind),
        "difference": result.estimate.difference,
        "low": low,
        "high": high,
        "boot_low": boot_low if math.isfinite(boot_low) else low,
        "boot_high": boot_high if math.isfinite(boot_high) else high,
    }


def _figures(result: Result) -> tuple[str, ...]:
    boot = "n/a"
    if result.estimate is not None:
        boot = " to ".join(text.signed(value) for value in result.bootstrap)
    return (
        result.method.label,
        str(result.verdict.kind).capitalize(),
        f"{len(result.method.runs)}",
        text.number(result.mean_loss, 4),
        text.signed(result.estimate.difference) if result.estimate else "n/a",
        " to ".join(text.signed(value) for value in result.t_interval),
        boot,
        text.p_text(result.verdict.p_adjusted),
    )


def _cost(arm: Arm) -> tuple[str, ...]:
    """What the runs of an arm cost: the first one's, since all of an arm have the same plan."""
    run = arm.runs[0]
    stages = run.config["plan"]["stages"]
    step = ", ".join(f"{1e3 * stage['seconds_per_step']:.4g}" for stage in stages)
    flops, params = run.summary.get("flops", {}), run.summary.get("params", {})
    return (
        arm.label,
        f"{run.steps:,}",
        step,
        text.duration(run.rst_s),
        f"{run.summary['tokens']:,}" if "tokens" in run.summary else "n/a",
        f"{params['nonzero']:,}" if "nonzero" in params else "n/a",
        f"{flops['dense']:.3e}" if "dense" in flops else "n/a",
        f"{flops['ideal']:.3e}" if "ideal" in flops else "n/a",
    )


def _downstream(result: Result) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in result.downstream:
        said = one.found + (", against what the loss says" if one.disagrees else "")
        rows.append(
            (
                result.method.label,
                f"{one.task}, {one.metric}",
                f"{text.number(one.baseline, 4)} ({one.baseline_runs})",
                f"{text.number(one.method, 4)} ({one.method_runs})",
                text.number(one.majority, 4),
                said,
            )
        )
    return rows


def _run(label: str, run: Any) -> tuple[str, ...]:
    end = "diverged" if run.diverged_at is not None else text.number(run.final_loss, 4)
    at = f"step {run.diverged_at:,}" if run.diverged_at is not None else f"{run.steps:,} steps"
    return (label, str(run.seed), end, at, str(run.folder))


def _pairing(block: Block) -> str:
    parts = []
    for result in block.results:
        if result.estimate is None:
            how = "no estimate, too few seeds"
        elif result.estimate.paired:
            how = f"differences seed by seed over {result.estimate.seeds} shared seeds"
        else:
            how = f"difference of means (Welch, {result.estimate.df:.1f} degrees of freedom)"
        parts.append(f"{result.method.label}: {how}")
    return "; ".join(parts)


def _conditions(arm: Arm) -> str:
    conditions = arm.conditions
    named = {
        "data": conditions.data,
        "evaluation set": conditions.evaluation_set,
        "tokenizer": conditions.tokenizer,
    }
    return ", ".join(
        f"{name} {value[:12] if value else 'not stated'}" for name, value in named.items()
    )


def _device(device: dict[str, Any]) -> str:
    return f"{device.get('count', '?')} × {device.get('kind', 'unknown device')}"


def _profile(comparison: Comparison, colours: dict[str, str]) -> dict[str, Any]:
    palette = {"baseline": charts.BASELINE} | colours
    palette = {one.method: palette[one.method] for one in comparison.profiles}
    finite = [v for one in comparison.profiles for v in one.ratios.values() if math.isfinite(v)]
    end = min(max([1.25, *(1.1 * value for value in finite)]), WORST_RATIO)
    rows = [
        row
        for one in comparison.profiles
        for row in series.profile_rows(one.method, list(one.ratios.values()), end)
    ]
    return {
        # With one workload the profile is a single step, which the table says better.
        "chart": charts.profiles(rows, palette) if len(comparison.reference_set) > 1 else None,
        "palette": palette,
        "frozen": comparison.frozen,
        "worst": f"{WORST_RATIO:g}",
        "targets": [
            (name, f"{target.loss:.4f}", text.duration(target.seconds))
            for name, target in comparison.reference_set.items()
        ],
        "rows": [
            (
                one.method,
                f"{one.score:.4f}",
                f"{one.speedup:.3f}" if one.speedup is not None else "n/a, a miss",
                f"{sum(math.isfinite(v) for v in one.ratios.values())} of {len(one.ratios)}",
            )
            for one in comparison.profiles
        ],
    }
