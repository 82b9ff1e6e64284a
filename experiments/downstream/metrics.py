"""Scores of predictions on held-out examples, each in [-1, 1]; the libraries that all quote."""

import collections
import dataclasses
import re
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.downstream.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    """What is known of the examples (N) that are predicted."""

    # Class or score of each, float (N,).
    labels: np.ndarray
    # Those that are judged together have the same.
    groups: Sequence[str]
    # Texts that count as right, for tasks that have such.
    answers: Sequence[tuple[str, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Predicted:
    """What a model made of them."""

    # Class or score, float (N,); -1 for an answer that is no class.
    labels: np.ndarray
    # How sure the model is that the example's own candidate is right, float (N,).
    scores: np.ndarray
    # What it answered, or the candidate that the example asks about.
    texts: Sequence[str]


def evaluate(task: Task, predicted: Predicted, held: Held) -> dict[str, float]:
    """Returns the task's metrics, the headline first."""
    return {name: METRICS[name](predicted, held) for name in task.metrics}


def _accuracy(predicted: Predicted, held: Held) -> float:
    return float(np.mean(predicted.labels == held.labels))


def _accuracy_in(group: str) -> Callable[[Predicted, Held], float]:
    def accuracy(predicted: Predicted, held: Held) -> float:
        inside = np.array([name == group for name in held.groups])
        if not inside.any():
            return float("nan")
        return float(np.mean((predicted.labels == held.labels)[inside]))

    return accuracy


def _matthews(predicted: Predicted, held: Held) -> float:
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(held.labels, predicted.labels))


def _f1(predicted: Predicted, held: Held) -> float:
    """F1 of class 1; an answer that is no class counts as class 0."""
    from sklearn.metrics import f1_score

    return float(f1_score(held.labels == 1, predicted.labels == 1, zero_division=0.0))


def _macro_f1(predicted: Predicted, held: Held) -> float:
    """Mean of the F1 of every class that occurs, the score of CommitmentBank in SuperGLUE."""
    from sklearn.metrics import f1_score

    classes = np.unique(held.labels)
    scores = f1_score(
        held.labels, predicted.labels, labels=classes, average="macro", zero_division=0.0
    )
    return float(scores)


def _pearson(predicted: Predicted, held: Held) -> float:
    from scipy.stats import pearsonr

    if _constant(predicted.labels) or _constant(held.labels):
        return 0.0  # undefined: such predictions tell nothing
    return float(pearsonr(predicted.labels, held.labels).statistic)


def _spearman(predicted: Predicted, held: Held) -> float:
    from scipy.stats import spearmanr

    if _constant(predicted.labels) or _constant(held.labels):
        return 0.0
    return float(spearmanr(predicted.labels, held.labels).statistic)


def _constant(values: np.ndarray) -> bool:
    return bool(np.all(values == values[0]))


def _exact_questions(predicted: Predicted, held: Held) -> float:
    """Share of the questions of which every answer is judged right (Khashabi et al. 2018)."""
    right: dict[str, bool] = {}
    hits = predicted.labels == held.labels
    for group, hit in zip(held.groups, hits, strict=True):
        right[group] = right.get(group, True) and bool(hit)
    return float(np.mean(list(right.values())))


def _best_of_queries(
    score: Callable[[str, str], float],
) -> Callable[[Predicted, Held], float]:
    """Scores the likeliest candidate of each query against its nearest answer, as in ReCoRD."""

    def metric(predicted: Predicted, held: Held) -> float:
        chosen: dict[str, int] = {}
        for index, group in enumerate(held.groups):
            best = chosen.get(group)
            if best is None or predicted.scores[index] > predicted.scores[best]:
                chosen[group] = index
        values = [
            max(score(predicted.texts[index], answer) for answer in held.answers[index])
            for index in chosen.values()
        ]
        return float(np.mean(values))

    return metric


def normalise(text: str) -> str:
    """SQuAD's form for comparing (Rajpurkar et al. 2016): lower case, no punctuation, articles."""
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _exact_text(found: str, answer: str) -> float:
    return float(normalise(found) == normalise(answer))


def word_f1(found: str, answer: str) -> float:
    """F1 over the words that two texts share."""
    found_words, answer_words = normalise(found).split(), normalise(answer).split()
    shared = sum((collections.Counter(found_words) & collections.Counter(answer_words)).values())
    return 2 * shared / (len(found_words) + len(answer_words)) if shared else 0.0


def _rouge_l(predicted: Predicted, held: Held) -> float:
    """Mean over instances of the best RougeL F-measure against an answer, in [0, 1]."""
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    values = [
        max(scorer.score(answer, text)["rougeL"].fmeasure for answer in answers)
        for text, answers in zip(predicted.texts, held.answers, strict=True)
    ]
    return float(np.mean(values))


METRICS: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": _accuracy,
    "accuracy_matched": _accuracy_in("matched"),
    "accuracy_mismatched": _accuracy_in("mismatched"),
    "matthews": _matthews,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "pearson": _pearson,
    "spearman": _spearman,
    "f1a": _f1,
    "em": _exact_questions,
    "record_f1": _best_of_queries(word_f1),
    "record_em": _best_of_queries(_exact_text),
    "rouge_l": _rouge_l,
}
