"""A comparison as JSON: the same figures as the page, for other programs."""

import math
from typing import Any

from experiments.comparison.compare import Block, Comparison, Result


def figures(comparison: Comparison) -> dict[str, Any]:
    """Every figure, interval and reason; numbers that are not finite become null."""
    options = comparison.options
    found = {
        "level": options.level,
        "power": options.power,
        "margin": str(options.margin),
        "blocks": [_block(block) for block in comparison.blocks],
        "profiles": [
            {
                "method": one.method,
                "ratios": one.ratios,
                "score": one.score,
                "geometric_mean_speedup": one.speedup,
            }
            for one in comparison.profiles
        ],
        "refused": [{"method": one.label, "reasons": one.reasons} for one in comparison.refused],
        "left_out": [
            {"folder": str(one.folder), "reason": one.reason} for one in comparison.left_out
        ],
    }
    return _finite(found)


def _block(block: Block) -> dict[str, Any]:
    return {
        "baseline": block.baseline.label,
        "scale": block.baseline.conditions.scale,
        "budget": block.baseline.conditions.budget,
        "seeds": [run.seed for run in block.baseline.runs],
        "final_loss": block.mean_loss,
        "margin_nats": block.margin.loss,
        "margin_how": block.margin.how,
        "warnings": block.warnings,
        "methods": [_result(block, result) for result in block.results],
    }


def _result(block: Block, result: Result) -> dict[str, Any]:
    estimate, verdict = result.estimate, result.verdict
    return {
        "method": result.method.label,
        "seeds": [run.seed for run in result.method.runs],
        "verdict": str(verdict.kind),
        "reason": verdict.reason,
        "seeds_needed": verdict.seeds_needed,
        "seeds_if_spread_is_right": verdict.seeds_if_spread_is_right,
        "p_holm": verdict.p_adjusted,
        "final_loss": result.mean_loss,
        "final_losses": [run.final_loss for run in result.method.runs],
        "better_by_nats": estimate and estimate.difference,
        "better_by_share_of_budget": estimate and block.margin.speedup(estimate.difference),
        "t_interval": result.t_interval,
        "bootstrap_interval": result.bootstrap,
        "paired": estimate and estimate.paired,
        "seconds_to_baseline_loss": result.times,
        "downstream": [vars(one) for one in result.downstream],
        "warnings": result.warnings,
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
