"""summary.json: the figures of a run, each with what it was measured on."""

import dataclasses
import pathlib
import re
from typing import Any

import jax
import numpy as np

from experiments.budget import Plan
from experiments.charge import charged
from experiments.comparison.identity import evaluation_digest, vocabulary_digest
from experiments.config import Experiment
from experiments.costs import add_costs, own_cost
from experiments.data.objectives import batch_spec, tokens_per_batch
from experiments.evaluate import Evaluation, Judge
from experiments.program import NO_METHOD, Program, examples_per_step
from experiments.step import State
from experiments.train import Outcome
from models.api import build
from sparsity.config import PruningConfig
from sparsity.cost import flops_zeros_computed, flops_zeros_skipped, parameter_bytes
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
    evaluation: Judge,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """What a finished run comes to; `config` is its config.json, `seconds` the clock's accounts."""
    steps = plan.total_steps
    pruned = None
    if experiment.pruning:
        pruned = sparsity_summary(experiment.pruning, state["params"], state["opt"])
    found = {
        "exp": experiment.name,
        "scale": experiment.scale,
        "seed": experiment.seed,
        "status": "finished",
        "steps": steps,
        "budget": experiment.budget,
        **charged(plan, outcome.input_wait_s, seconds["train"]),
        "wall_s": sum(seconds.values()),
        "seconds": seconds,
        "step_time_s": outcome.step_time and dataclasses.asdict(outcome.step_time),
        "to_first_step_s": outcome.to_first_step_s,
        "planned_from": config["plan"]["from"],
        "device": config["device"],
        "reference": config["reference"]["name"],
        "ratio": config["reference"]["ratio"],
        "account": config["reference"].get("account", "rst"),
        "params": _count_parameters(experiment, state),
        "sparsity": pruned,
        "flops": _flops(experiment, plan, program, pruned),
        "tokens": steps * tokens_per_batch(experiment.data, experiment.train.batch_size),
        "data": config["data"]["digest"],
        "vocabulary": vocabulary_digest(pathlib.Path(config["data"]["folder"])),
        "validation": _validation(evaluation),
        "attention": program.model.attention_kernels(_shapes(experiment)),
        "bytes": _bytes(experiment, state, pruned),
        "final": outcome.final,
    }
    if (start := config.get("init")) is not None:
        # With all training that led to the weights it started from, beside its own.
        found |= {"init": start, "with_init": add_costs(start["cost"], own_cost(found))}
    return found


def summarise_diverged(
    experiment: Experiment,
    config: dict[str, Any],
    plan: Plan,
    step: int,
    evaluation: Judge,
) -> dict[str, Any]:
    """What is known of a run whose loss stopped being finite at `step`."""
    return {
        "exp": experiment.name,
        "scale": experiment.scale,
        "seed": experiment.seed,
        "status": "diverged",
        "step": step,
        "steps": plan.total_steps,
        "budget": experiment.budget,
        "rst_s": plan.rst_s(step),
        "device": config["device"],
        "reference": config["reference"]["name"],
        "ratio": config["reference"]["ratio"],
        "data": config["data"]["digest"],
        "vocabulary": vocabulary_digest(pathlib.Path(config["data"]["folder"])),
        "validation": _validation(evaluation),
        "final": {},
    }


def _validation(evaluation: Judge) -> dict[str, Any]:
    """What the loss was measured on, so that unlike runs are never compared."""
    facts: dict[str, Any] = {
        "examples": evaluation.examples,
        "unigram_nll": evaluation.unigram_nll,
    }
    # The held-out examples of a downstream task are all of them, as its data's digest tells.
    if isinstance(evaluation, Evaluation):
        facts["digest"] = evaluation_digest(evaluation.batches)
    return facts


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


def _bytes(experiment: Experiment, state: State, pruned: Summary | None) -> dict[str, int | None]:
    """Bytes of the parameters on disk in each form, without the file's header."""
    zeros = {path: one["zeros"] for path, one in pruned["by_path"].items()} if pruned else {}
    cfg = experiment.pruning or PruningConfig()
    return dataclasses.asdict(parameter_bytes(cfg, state["params"], zeros))


def _flops(
    experiment: Experiment, plan: Plan, program: Program, pruned: Summary | None
) -> dict[str, float]:
    """Training FLOPs with zeros computed ("dense") and with zeros skipped ("ideal")."""
    forward: dict[str, float] = dict(program.model.forward_flops(_shapes(experiment)))
    if pruned is None or experiment.pruning is None:
        dense = _dense_flops(experiment, plan)
        return {"dense": dense, "ideal": dense}
    dense = flops_zeros_computed(forward, plan.total_steps).training
    progress = np.array([plan.progress(step) for step in range(plan.total_steps + 1)])
    reached = {path: one["reached"] for path, one in pruned["by_path"].items()}
    ideal = flops_zeros_skipped(experiment.pruning, forward, reached, progress).training
    return {"dense": dense, "ideal": ideal}


def _dense_flops(experiment: Experiment, plan: Plan) -> float:
    """Training FLOPs, each stage with the layers that it has, and those of scoring candidates."""
    method = experiment.method or NO_METHOD
    batch, given = experiment.train.batch_size, examples_per_step(experiment)
    total = 0.0
    for stage, spec in zip(plan.stages, method.stages(experiment), strict=True):
        forward = build(spec.experiment.model).forward_flops(_shapes(experiment))
        scored = sum(forward.values()) * given / batch if given > batch else 0.0
        share = method.mean_share_of_layers(spec.experiment)
        run = {
            path: flops * (share if "layers" in path or path == "attention_scores" else 1.0)
            for path, flops in forward.items()
        }
        total += flops_zeros_computed(run, stage.steps).training + stage.steps * scored
    return total
