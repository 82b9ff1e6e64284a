"""What decides a compiled program, and a short name for it."""

import hashlib
import json
from typing import Any

from experiments.config import Experiment, to_json


def program_description(experiment: Experiment, kind: str = "train") -> dict[str, Any]:
    """What decides the program that is compiled, and nothing that leaves its cost as it is.

    Learning rates, seeds, budgets and the degree of sparsity are left out, so that runs which
    differ only in these are planned from the same seconds.
    """
    model = to_json(experiment.model)
    data, optimizer, pruning = experiment.data, experiment.optimizer, experiment.pruning
    return {
        "model": model,
        "lengths": [data.objective, data.inputs_length, data.targets_length],
        "batch": [experiment.train.batch_size, experiment.train.microbatches],
        "mesh": to_json(experiment.mesh),
        "optimizer": [
            optimizer.name,
            optimizer.factored,
            optimizer.scale_by_rms,
            optimizer.beta1 > 0,
            optimizer.clip_norm > 0,
            optimizer.weight_decay > 0,
        ],
        "pruning": pruning
        and [
            pruning.rule,
            pruning.pattern,
            pruning.distribution,
            pruning.update_every_steps,
            pruning.start_fraction,
            pruning.end_fraction,
        ],
    } | _beside(experiment, kind)


def _beside(experiment: Experiment, kind: str) -> dict[str, Any]:
    """What a method, or an optimiser's other programs, add to the description."""
    facts = experiment.method.cost_facts(kind) if experiment.method else []
    added: dict[str, Any] = {"method": facts} if facts else {}
    if experiment.head:
        added["head"] = to_json(experiment.head)
    if experiment.fff:
        # Imported here: few experiments need it, and it needs jax.
        from fff.kernels import choose_training

        # A machine without a compiler trains by another kernel, in another time.
        is_hard = experiment.fff.form == "hard"
        kernel = {"kernel": choose_training(experiment.fff)} if is_hard else {}
        added["fff"] = to_json(experiment.fff) | kernel
    if kind != "train":
        added["kind"] = kind
    if kind == "hessian" and experiment.optimizer.sophia:
        added["hessian_examples"] = experiment.optimizer.sophia.hessian_examples
    return added


def program_key(experiment: Experiment, kind: str = "train") -> str:
    """Twelve hex digits that are equal for experiments with the same program."""
    text = json.dumps(program_description(experiment, kind), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
