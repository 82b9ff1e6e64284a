"""`python -m experiments.published_budgets`: updates that No Train No Gain's methods get.

The experiments of this suite at paper scale, planned by the seconds published for the paper's own
devices (`--reference=ntng`), as a run of each would be.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.config import Experiment
from experiments.launch import run_main
from experiments.reference import find_reference
from experiments.registry import resolve
from experiments.table_plan import plan_by_table

HOURS = (6, 12, 24)

# Row → experiment, and settings of its method that are not its own.
ROWS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "BERT baseline": ("bert_baseline", {}),
    "BERT Lion": ("bert_lion", {}),
    "BERT layer stacking 4/8/16": ("bert_stacking", {}),
    "BERT layer dropping": ("bert_layer_dropping", {}),
    "BERT selective backprop, β 1": ("bert_selective_backprop", {"beta": 1}),
    "BERT selective backprop, β 2": ("bert_selective_backprop", {"beta": 2}),
    "BERT selective backprop, β 3": ("bert_selective_backprop", {"beta": 3, "history": 6144}),
    "BERT RHO loss, 3,072": ("bert_rho", {"mega_batches": 2}),
    "BERT RHO loss, 15,360": ("bert_rho", {"mega_batches": 10}),
    "BERT Sophia": ("bert_sophia_g", {}),
    "T5 AdamW": ("t5_baseline", {}),
    "T5 Lion": ("t5_lion", {}),
    "T5 Sophia": ("t5_sophia_g", {}),
    "T5 layer stacking 3/6/12": ("t5_stacking", {}),
}


def row(name: str) -> Experiment:
    """The experiment of a row at paper scale."""
    exp, settings = ROWS[name]
    experiment = resolve(exp, "paper")
    if settings and experiment.method is not None:
        method = dataclasses.replace(experiment.method, **settings)
        experiment = dataclasses.replace(experiment, method=method)
    experiment.check()
    return experiment


def updates(experiment: Experiment, hours: float) -> int:
    """Updates that so many hours of the published device buy."""
    experiment = dataclasses.replace(experiment, budget=f"{hours}h")
    plan = plan_by_table(experiment, find_reference("ntng"))
    assert plan is not None  # A published table raises where it has no figure.
    return plan.total_steps


def main(argv: Sequence[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    table = Table("method", *(f"{hours} h" for hours in HOURS), "over its baseline")
    baseline: dict[str, int] = {}
    for name in ROWS:
        counts = [updates(row(name), hours) for hours in HOURS]
        first = baseline.setdefault(name.split()[0], counts[-1])
        table.add_row(name, *(f"{count:,}" for count in counts), f"{counts[-1] / first:.3f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    run_main(main)
