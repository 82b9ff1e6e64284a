"""Evaluation on fixed validation batches: every mean is a sum over a count."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import jax

from experiments.data.baseline import target_bytes, unigram_nll
from experiments.data.batches import Batches
from experiments.data.config import DataConfig
from experiments.data.windows import Prepared
from models.mesh import place_batch

# (state, batch) → sums; of a downstream task also what is answered to each example
EvalStep = Callable[[Any, Any], Any]


class Judge(Protocol):
    """What a run is judged by between its steps and at its end."""

    # Examples that are looked at.
    examples: int
    # Loss of what looks at no input.
    unigram_nll: float

    def __call__(self, eval_step: EvalStep, state: Any, shapes: Any) -> dict[str, float]: ...


class Evaluation:
    """The same validation batches, with the same masks, for every run on the same data."""

    def __init__(self, prepared: Prepared, cfg: DataConfig, batches: Batches, num_batches: int):
        count = min(num_batches, batches.steps_per_epoch)
        self.batches = [batches.batch(seed=0, i=index) for index in range(count)]
        self.examples = min(count * batches.batch_size, batches.num_windows)
        self._is_text = cfg.objective != "image_classification"
        self._bytes = target_bytes(prepared, self.batches) if self._is_text else 0
        total, weight = unigram_nll(prepared, cfg, self.batches)
        # Nats per target of a model that only knows how frequent each target is.
        self.unigram_nll = total / weight

    def __call__(self, eval_step: EvalStep, state: Any, shapes: Any) -> dict[str, float]:
        """Means over all batches; bits per byte of the text that the targets stand for.

        `shapes` are those of a batch, with the shardings in which the step takes it.
        """
        queued = [eval_step(state, place_batch(batch, shapes)) for batch in self.batches]
        totals: dict[str, list[float]] = {}
        for sums in jax.device_get(queued):
            for name, (total, count) in sums.items():
                into = totals.setdefault(name, [0.0, 0.0])
                into[0] += float(total)
                into[1] += float(count)
        means = {name: total / count for name, (total, count) in totals.items()}
        if self._is_text:
            means["bits_per_byte"] = totals["nll"][0] / math.log(2) / self._bytes
        return means
