"""A comparison as a table on the terminal, and the sentences that it shares with the page."""

import math
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments.comparison.compare import Block, Comparison, Result
from experiments.comparison.profile import median_time

_COLOURS = {
    "gain": "bold green",
    "loss": "bold red",
    "no gain": "bold",
    "cannot tell yet": "yellow",
}


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Prints a table for each baseline and budget, then everything that is not in one."""
    for block in comparison.blocks:
        conditions = block.baseline.conditions
        table = Table(
            title=f"{escape(block.baseline.label)}, {conditions.scale} scale, {conditions.budget}: "
            f"final loss {number(block.mean_loss, 4)} ({seeds_text(block.baseline.runs)})",
            title_justify="left",
        )
        coverage = 100 - 100 * comparison.options.level
        interval = f"better by ({coverage:g} % t)"
        for column in ("method", "verdict", "final loss", interval, "p, Holm"):
            table.add_column(column, overflow="fold")
        for result in block.results:
            kind = str(result.verdict.kind)
            table.add_row(
                escape(result.method.label),
                f"[{_COLOURS[kind]}]{kind}[/]",
                number(result.mean_loss, 4),
                difference_text(result),
                p_text(result.verdict.p_adjusted),
            )
        console.print(table, soft_wrap=False)
        for result in block.results:
            console.print(
                f"{result.method.label}: {result.verdict.kind}, {result.verdict.reason}.",
                markup=False,
            )
        console.print(f"Smallest gain of interest: {block.margin.how}.", markup=False)
    for line in (*warnings(comparison), *not_compared(comparison)):
        console.print(line, markup=False)


def warnings(comparison: Comparison) -> Iterator[str]:
    """What weighs on the verdicts, each once."""
    seen = set()
    for block in comparison.blocks:
        for warning in (*block.warnings, *(w for r in block.results for w in r.warnings)):
            if warning not in seen:
                seen.add(warning)
                yield f"{warning}."
        for result in block.results:
            for one in result.downstream:
                if one.disagrees:
                    yield (
                        f"{result.method.label} is {one.found} on {one.task} "
                        f"({one.metric}), against what its loss says."
                    )


def not_compared(comparison: Comparison) -> Iterator[str]:
    """Every refusal and every run that was left out; nothing is dropped in silence."""
    for refused in comparison.refused:
        yield f"Refused: {refused}."
    for left_out in comparison.left_out:
        yield f"Left out: {left_out.folder}: {left_out.reason}."


def why_text(block: Block, result: Result, coverage: float) -> str:
    """The difference in words, with its interval and its worth in budget, and what follows."""
    reason = result.verdict.reason
    if result.estimate is None:
        return f"{reason[0].upper()}{reason[1:]}."
    low, high = result.t_interval
    difference = result.estimate.difference
    found = (
        f"ts loss is {abs(difference):.4f} nats {'lower' if difference >= 0 else 'higher'} "
        f"(better by {signed(low)} to {signed(high)} with {coverage:g} % confidence)"
    )
    worth = speedup_text(block, result)
    if worth != "n/a":
        found += f", worth {worth} of the budget"
    if result.method.diverged:
        return f"{reason[0].upper()}{reason[1:]}. Of the others: i{found}."
    return f"I{found}: {reason}."


def budget_text(budget: str) -> str:
    """`6 s`, `24 h` or `2,000 steps` of a budget as conditions state it."""
    amount, unit = budget.split()
    return duration(float(amount)) if unit == "s" else f"{float(amount):,.0f} {unit}"


def seeds_text(runs: tuple) -> str:
    return f"{len(runs)} seed{'s' if len(runs) != 1 else ''}"


def difference_text(result: Result) -> str:
    """`+0.0123 (−0.0010 to +0.0256)`: positive where the method is better."""
    if result.estimate is None:
        return "n/a"
    low, high = result.t_interval
    return f"{signed(result.estimate.difference)} ({signed(low)} to {signed(high)})"


def speedup_text(block: Block, result: Result) -> str:
    """What the difference would cost in budget: `+3.1 % (−0.4 to +6.8 %)`."""
    if result.estimate is None or not block.margin.slope > 0:
        return "n/a"
    low, high = (100 * block.margin.speedup(value) for value in result.t_interval)
    middle = 100 * block.margin.speedup(result.estimate.difference)
    return f"{signed(middle, 1)} % ({signed(low, 1)} to {signed(high, 1)} %)"


def time_text(block: Block, result: Result) -> str:
    """The median time to the baseline's final loss, and how many seeds reach it."""
    seconds = median_time(result.times)
    reached = f"{result.reached} of {len(result.times)} seeds"
    if math.isinf(seconds):
        return f"not reached ({reached})"
    return f"{duration(seconds)} of {duration(block.budget_s)} ({reached})"


def number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "n/a"


def p_text(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else number(value, 4)


def signed(value: float, digits: int = 4) -> str:
    """With a sign that is as wide as its digits; never a negative zero."""
    if not math.isfinite(value):
        return "n/a"
    text = f"{value:+.{digits}f}"
    if float(text) == 0:
        text = f"+{abs(float(text)):.{digits}f}"
    return text.replace("-", "−")


def duration(seconds: float) -> str:
    """`42 s`, `7.5 min` or `23.9 h`, three digits of it."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    return f"{seconds / 3600:.3g} h"
