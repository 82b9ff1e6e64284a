"""summary.json: the figures of a run, each with what it was measured on."""

import dataclasses
import re
from typing import Any

import jax
import numpy as np

from experiments.budget import Plan
from experiments.config import Experiment
from experiments.data.objectives import batch_spec, tokens_per_batch
from experiments.evaluate import Evaluation
from experiments.program import Program
from experiments.step import State
from experiments.train import Outcome
from sparsity.config import PruningConfig
from sparsity.cost import flops_zeros_computed, flops_zeros_skipped
from sparsity.plan import named_leaves
from sparsity.prune import masks_of
from sparsity.report import Summary
from sparsity.report import summary as sparsity_summary


def summarise(
    experiment: Experiment,
    config: dict[str, Any],
    plan: Plan,
    program: Program,
    state: State,
    outcome: Outcome,
    evaluation: Evaluation,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """What a finished run comes to; `config` is its config.json, `seconds` the clock's accounts."""
    steps = plan.total_steps
    pruned = None
    if experiment.pruning:
        pruned = sparsity_summary(experiment.pruning, state["params"], state["opt"])
    return {
        "exp": experiment.name,
        "scale": experiment.scale,
        "seed": experiment.seed,
        "status": "finished",
        "steps": steps,
        "budget": experiment.budget,
        "rst_s": plan.rst_s(steps),
        "wall_s": sum(seconds.values()),
        "seconds": seconds,
        "step_time_s": outcome.step_time and dataclasses.asdict(outcome.step_time),
        "to_first_step_s": outcome.to_first_step_s,
        "planned_from": config["plan"]["from"],
        "device": config["device"],
        "reference": config["reference"]["name"],
        "ratio": config["reference"]["ratio"],
        "input_wait_share": outcome.input_wait_s / seconds["train"],
        "params": _count_parameters(experiment, state),
        "sparsity": pruned,
        "flops": _flops(experiment, plan, program, pruned),
        "tokens": steps * tokens_per_batch(experiment.data, experiment.train.batch_size),
        "data": config["data"]["digest"],
        "validation": {
            "examples": evaluation.examples,
            "unigram_nll": evaluation.unigram_nll,
        },
        "attention": program.model.attention_kernels(_shapes(experiment)),
        "final": outcome.final,
    }


def _shapes(experiment: Experiment) -> dict[str, tuple[int, ...]]:
    spec = batch_spec(experiment.data, experiment.train.batch_size)
    return {name: shape for name, (shape, _) in spec.items()}


def _count_parameters(experiment: Experiment, state: State) -> dict[str, int]:
    """Counts parameters; those that a mask prunes are the zeros."""
    patterns = (experiment.pruning or PruningConfig()).embedding
    masks = masks_of(state["opt"])
    counts = dict.fromkeys(("total", "nonzero", "embedding", "nonzero_without_embedding"), 0)
    for path, leaf in named_leaves(state["params"]):
        kept = int(jax.numpy.count_nonzero(masks[path])) if path in masks else leaf.size
        embedding = any(re.search(pattern, path) for pattern in patterns)
        counts["total"] += leaf.size
        counts["nonzero"] += kept
        counts["embedding"] += leaf.size if embedding else 0
        counts["nonzero_without_embedding"] += 0 if embedding else kept
    return counts


def _flops(
    experiment: Experiment, plan: Plan, program: Program, pruned: Summary | None
) -> dict[str, float]:
    """Training FLOPs with zeros computed ("dense") and with zeros skipped ("ideal")."""
    forward: dict[str, float] = dict(program.model.forward_flops(_shapes(experiment)))
    dense = flops_zeros_computed(forward, plan.total_steps).training
    if pruned is None or experiment.pruning is None:
        return {"dense": dense, "ideal": dense}
    progress = np.array([plan.progress(step) for step in range(plan.total_steps + 1)])
    reached = {path: one["reached"] for path, one in pruned["by_path"].items()}
    ideal = flops_zeros_skipped(experiment.pruning, forward, reached, progress).training
    return {"dense": dense, "ideal": ideal}
