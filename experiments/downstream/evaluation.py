"""Judges a model on the whole held-out part of a task: losses, metrics, and what they say."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from experiments.data.batches import Batches
from experiments.data.config import DataConfig
from experiments.data.vocabulary import EOS, PAD, UNKNOWN, load
from experiments.data.windows import Prepared
from experiments.downstream.metrics import Held, Predicted, evaluate
from experiments.downstream.registry import find_task
from experiments.downstream.task import Task
from models.mesh import place_batch

# (state, batch) → sums, and what the model makes of each example: outputs (B, N) or tokens (B, T)
TaskEvalStep = Callable[[Any, Any], tuple[dict[str, tuple[jax.Array, jax.Array]], jax.Array]]
HeldOut = Literal["validation", "test"]


class TaskEvaluation:
    """All held-out examples of a task, with the metrics that it is judged by.

    Predictions of the examples that fill up the last batch are dropped, and every metric is one of
    all predictions, not a mean of batches.
    """

    def __init__(self, prepared: Prepared, cfg: DataConfig, batch_size: int):
        self.task = find_task(cfg.task or "")
        self._splits = [
            _Split(prepared, cfg, name, batch_size)
            for name in ("validation", "test")
            if name in self.task.held_out
        ]
        self.examples = self._splits[0].batches.num_windows
        # The loss of the best answer that looks at no input: nats, or a squared error.
        self.unigram_nll = _constant_loss(self.task, prepared, cfg)
        self._words = None
        if cfg.objective == "text_to_text":
            self._words = load(Path(prepared.folder, "vocabulary.model"))

    def __call__(self, eval_step: TaskEvalStep, state: Any, shapes: Any) -> dict[str, float]:
        """Returns mean losses and metrics of validation, and of a test part under `test_`.

        `shapes` are those of a batch, with the shardings in which the step takes it.
        """
        results: dict[str, float] = {}
        for split in self._splits:
            prefix = "" if split.name == "validation" else "test_"
            sums, outputs = split.run(eval_step, state, shapes)
            found = {name: total / count for name, (total, count) in sums.items()}
            found |= evaluate(self.task, self._predicted(outputs, split.candidates), split.held)
            results |= {f"{prefix}{name}": value for name, value in found.items()}
        return results

    def _predicted(self, outputs: np.ndarray, candidates: list[str]) -> Predicted:
        count = len(outputs)
        if self._words is not None:
            pieces = self._words.get_piece_size()
            texts = [self._words.decode(_until_eos(row, pieces)) for row in outputs]
            labels = np.zeros(count, np.float32)
            if self.task.kind != "text":
                labels = np.array([self.task.label_of(text) for text in texts], np.float32)
            return Predicted(labels=labels, scores=np.zeros(count), texts=texts)
        if self.task.kind == "regression":
            return Predicted(labels=outputs[:, 0], scores=outputs[:, 0], texts=candidates)
        return Predicted(
            labels=np.argmax(outputs, axis=1).astype(np.float32),
            scores=outputs[:, 1] - outputs[:, 0],
            texts=candidates,
        )


class _Split:
    """One held-out part."""

    def __init__(self, prepared: Prepared, cfg: DataConfig, name: HeldOut, batch_size: int):
        self.name = name
        self.batches = Batches(prepared, cfg, name, batch_size)
        about = json.loads(prepared.array(name, "about").tobytes())
        self.candidates = [candidate for _, _, candidate in about]
        self.held = Held(
            labels=np.array(prepared.array(name, "labels"), np.float32),
            groups=[group for group, _, _ in about],
            answers=[tuple(answers) for _, answers, _ in about],
        )

    def run(
        self, eval_step: TaskEvalStep, state: Any, shapes: Any
    ) -> tuple[dict[str, tuple[float, float]], np.ndarray]:
        """Returns the sums over all examples and the outputs of each."""
        queued = [eval_step(state, place_batch(batch, shapes)) for batch in self._all()]
        totals: dict[str, tuple[float, float]] = {}
        outputs = []
        for sums, output in jax.device_get(queued):
            for name, (total, count) in sums.items():
                before = totals.get(name, (0.0, 0.0))
                totals[name] = before[0] + float(total), before[1] + float(count)
            outputs.append(output)
        return totals, np.concatenate(outputs)[: self.batches.num_windows]

    def _all(self) -> Iterator[dict[str, np.ndarray]]:
        for index in range(self.batches.steps_per_epoch):
            yield self.batches.batch(seed=0, i=index)


def _until_eos(tokens: np.ndarray, pieces: int) -> list[int]:
    """Returns the tokens before the end of the answer; what is no text, a sentinel, is unknown."""
    ends = np.flatnonzero((tokens == EOS) | (tokens == PAD))
    answer = tokens[: ends[0] if len(ends) else None]
    return np.where(answer < pieces, answer, UNKNOWN).tolist()


def _constant_loss(task: Task, prepared: Prepared, cfg: DataConfig) -> float:
    if cfg.objective == "text_to_text":
        targets = np.asarray(prepared.array("validation", "targets")).ravel()
        seen = np.asarray(prepared.array("train", "targets")).ravel()
        return _unigram(seen[seen != PAD], targets[targets != PAD], prepared.vocab_size)
    seen = np.asarray(prepared.array("train", "labels"))
    labels = np.asarray(prepared.array("validation", "labels"))
    if task.kind == "regression":
        return float(np.mean(np.square(labels - seen.mean())))
    return _unigram(seen.astype(int), labels.astype(int), len(task.labels))


def _unigram(seen: np.ndarray, asked: np.ndarray, size: int) -> float:
    """Returns nats a label under how frequent each is in training, with one added to each."""
    counts = np.bincount(seen, minlength=size) + 1.0
    return math.log(counts.sum()) - float(np.mean(np.log(counts)[asked]))
