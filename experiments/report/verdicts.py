"""The head of a comparison's page: what was asked, and every verdict."""

from typing import Any

from experiments.comparison import text
from experiments.comparison.arms import Arm
from experiments.comparison.compare import Block, Comparison, Result, short_name
from experiments.comparison.verdict import Kind

_CLASS = {Kind.GAIN: "gain", Kind.NO_GAIN: "none", Kind.LOSS: "loss", Kind.CANNOT_TELL: "open"}


def question(comparison: Comparison) -> str:
    baselines = list(dict.fromkeys(block.baseline.label for block in comparison.blocks))
    methods = list(
        dict.fromkeys(r.method.label for block in comparison.blocks for r in block.results)
    )
    against = " or ".join(baselines)
    if len(methods) == 1:
        return f"Does {methods[0]} beat {against}?"
    return f"Does anything beat {against}?"


def answer(comparison: Comparison) -> str:
    """All verdicts in a sentence."""
    found = [(block, result) for block in comparison.blocks for result in block.results]
    kinds = [result.verdict.kind for _, result in found]
    gains = [
        f"{result.method.label} at {_amount(block.baseline)}"
        for block, result in found
        if result.verdict.kind is Kind.GAIN
    ]
    if gains:
        return f"Yes: {', '.join(gains)}."
    if unknown := kinds.count(Kind.CANNOT_TELL):
        return f"No gain is shown; {unknown} of {len(kinds)} verdicts are open."
    return "No, none of them is a gain."


def asked(comparison: Comparison) -> str:
    baselines = [block.baseline for block in comparison.blocks]
    budgets = ", ".join(dict.fromkeys(_amount(arm) for arm in baselines))
    where = " or ".join(dict.fromkeys(_reference(arm) for arm in baselines if _is_time(arm)))
    scales = " and ".join(dict.fromkeys(arm.conditions.scale for arm in baselines))
    return f"Each side gets the same budget: {budgets}{where and f' of {where}'}, {scales} scale."


def budget(arm: Arm) -> str:
    return f"{_amount(arm)} of {_reference(arm)}" if _is_time(arm) else _amount(arm)


def _amount(arm: Arm) -> str:
    return text.budget_text(arm.conditions.budget)


def _is_time(arm: Arm) -> bool:
    return arm.conditions.budget.endswith(" s")


def _reference(arm: Arm) -> str:
    reference = arm.conditions.reference or "an unknown reference"
    return reference.removeprefix("here (").removesuffix(")").partition(" × ")[0]


def card(block: Block, result: Result, coverage: float) -> dict[str, Any]:
    kind = result.verdict.kind
    return {
        "kind": _CLASS[kind],
        "word": str(kind).capitalize(),
        "who": f"{result.method.label} against {block.baseline.label}",
        "where": f"{budget(block.baseline)}, {_seeds(block, result)}",
        "method": result.method.label,
        "why": text.why_text(block, result, coverage),
        "worth": text.speedup_text(block, result),
    }


def matrix(comparison: Comparison, cards: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Verdicts of every method, by its short name, at every budget or workload."""
    blocks = comparison.blocks
    several = len({block.baseline.label for block in blocks}) > 1
    rows: dict[str, list[dict[str, Any] | None]] = {}
    # The longest budget decides the order.
    for block in sorted(blocks, key=lambda block: -block.budget_s):
        for result in block.results:
            rows.setdefault(short_name(result.method.label), [None] * len(blocks))
    for column, own in enumerate(cards):
        for one in own:
            rows[short_name(one["method"])][column] = one
    return {
        "headings": [
            f"{block.baseline.label}, {_amount(block.baseline)}"
            if several
            else _amount(block.baseline)
            for block in blocks
        ],
        "rows": list(rows.items()),
    }


def _seeds(block: Block, result: Result) -> str:
    ours, theirs = len(result.method.runs), len(block.baseline.runs)
    if result.estimate is not None and result.estimate.paired:
        return f"{result.estimate.seeds} pairs of seeds"
    return f"{ours} seeds" if ours == theirs else f"{ours} against {theirs} seeds"
