"""What runs have cost, and what they have cost together with the runs they started from."""

from typing import Any


def total_cost(summary: dict[str, Any]) -> dict[str, Any] | None:
    """What a finished run and all that it started from have cost; None where that is not known."""
    return summary["with_init"] if "with_init" in summary else own_cost(summary)


def own_cost(summary: dict[str, Any]) -> dict[str, Any]:
    """What a finished run itself has cost."""
    clock = f"{summary['reference']} on {summary['device']['kind']}"
    if summary["reference"] != "here":
        clock = summary["reference"]
    return {
        "steps": summary["steps"],
        "tokens": summary["tokens"],
        "rst_s": summary["rst_s"],
        "reference": clock,
        "flops": dict(summary["flops"]),
    }


def add_costs(left: dict[str, Any] | None, right: dict[str, Any]) -> dict[str, Any] | None:
    """The cost of both, None where the first is not known.

    Reference-system seconds add up only within one reference: `rst_s` is None across two.
    """
    if left is None:
        return None
    same = left["reference"] == right["reference"] and left["rst_s"] is not None
    return {
        "steps": left["steps"] + right["steps"],
        "tokens": left["tokens"] + right["tokens"],
        "rst_s": left["rst_s"] + right["rst_s"] if same else None,
        "reference": right["reference"],
        "flops": {name: left["flops"][name] + value for name, value in right["flops"].items()},
    }
