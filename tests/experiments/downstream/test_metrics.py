"""Metrics against scikit-learn, SciPy and loops, on random predictions."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from experiments.downstream.metrics import METRICS, Held, Predicted, normalise, word_f1

N = 83


def drawn(classes=2, seed=0, groups=1):
    """Random labels, and predictions that agree with half of them."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, classes, N).astype(np.float32)
    guesses = np.where(draw.random(N) < 0.5, labels, draw.integers(0, classes, N))
    held = Held(
        labels=labels,
        groups=[str(index % groups) for index in range(N)],
        answers=[("a",)] * N,
    )
    return held, Predicted(labels=guesses.astype(np.float32), scores=draw.random(N), texts=[""] * N)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "classes", "reference"),
    [
        ("accuracy", 3, sklearn.metrics.accuracy_score),
        ("matthews", 2, sklearn.metrics.matthews_corrcoef),
        ("f1", 2, sklearn.metrics.f1_score),
        ("f1a", 2, sklearn.metrics.f1_score),
        ("macro_f1", 3, lambda y, p: sklearn.metrics.f1_score(y, p, average="macro")),
    ],
)
def test_class_metrics(name, classes, reference, seed):
    held, predicted = drawn(classes, seed)
    assert METRICS[name](predicted, held) == pytest.approx(
        reference(held.labels, predicted.labels), abs=1e-12
    )


def test_class_metrics_from_counts():
    held, predicted = drawn(2, seed=7)
    y, p = held.labels == 1, predicted.labels == 1
    tp, fp, fn, tn = (y & p).sum(), (~y & p).sum(), (y & ~p).sum(), (~y & ~p).sum()
    assert METRICS["f1"](predicted, held) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    root = np.sqrt(float((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))
    assert METRICS["matthews"](predicted, held) == pytest.approx((tp * tn - fp * fn) / root)


def test_an_answer_that_is_no_class_is_wrong():
    held = Held(labels=np.array([0.0, 1.0, 1.0]), groups=[""] * 3, answers=[()] * 3)
    predicted = Predicted(labels=np.array([-1.0, 1.0, -1.0]), scores=np.zeros(3), texts=[""] * 3)
    assert METRICS["accuracy"](predicted, held) == pytest.approx(1 / 3)
    assert METRICS["f1"](predicted, held) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("name", "reference"),
    [("pearson", scipy.stats.pearsonr), ("spearman", scipy.stats.spearmanr)],
)
def test_correlations(name, reference):
    held, predicted = drawn(6, seed=1)
    expected = reference(predicted.labels, held.labels).statistic
    assert METRICS[name](predicted, held) == pytest.approx(expected, abs=1e-6)
    flat = Predicted(labels=np.ones(N, np.float32), scores=np.zeros(N), texts=[""] * N)
    assert METRICS[name](flat, held) == 0.0


def test_matched_and_mismatched_are_apart():
    held, predicted = drawn(3, seed=2)
    groups = ["matched" if index < 30 else "mismatched" for index in range(N)]
    held = Held(labels=held.labels, groups=groups, answers=held.answers)
    right = predicted.labels == held.labels
    assert METRICS["accuracy_matched"](predicted, held) == pytest.approx(right[:30].mean())
    assert METRICS["accuracy_mismatched"](predicted, held) == pytest.approx(right[30:].mean())


def test_exact_questions_against_a_loop():
    held, predicted = drawn(2, seed=3, groups=20)
    whole = 0
    for question in set(held.groups):
        members = [i for i in range(N) if held.groups[i] == question]
        whole += all(held.labels[i] == predicted.labels[i] for i in members)
    assert METRICS["em"](predicted, held) == pytest.approx(whole / 20)


def test_record_takes_the_likeliest_entity_and_the_nearest_answer():
    held = Held(
        labels=np.zeros(4),
        groups=["q1", "q1", "q2", "q2"],
        answers=[("the Red Cross", "Red Cross Society")] * 2 + [("Paris",)] * 2,
    )
    predicted = Predicted(
        labels=np.zeros(4),
        scores=np.array([0.1, 0.9, 0.8, 0.2]),
        texts=["Nobody", "Red Cross!", "London", "Paris"],
    )
    assert METRICS["record_em"](predicted, held) == 0.5
    assert METRICS["record_f1"](predicted, held) == 0.5
    assert normalise("The  Red, Cross") == "red cross"
    assert word_f1("red cross", "red cross society") == pytest.approx(0.8)
    assert word_f1("a", "b") == 0.0


def test_rouge_takes_the_best_of_the_answers():
    def lcs(a, b):
        table = np.zeros((len(a) + 1, len(b) + 1), int)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                same = table[i, j] + 1
                table[i + 1, j + 1] = same if x == y else max(table[i, j + 1], table[i + 1, j])
        return table[-1, -1]

    text, answers = "w1 w2 w3 w4", ("w9 w2 w4", "w1 w2 w3 w9 w8")
    expected = 0.0
    for answer in answers:
        shared = lcs(text.split(), answer.split())
        p, r = shared / 4, shared / len(answer.split())
        expected = max(expected, 2 * p * r / (p + r))
    held = Held(labels=np.zeros(1), groups=[""], answers=[answers])
    predicted = Predicted(labels=np.zeros(1), scores=np.zeros(1), texts=[text])
    assert METRICS["rouge_l"](predicted, held) == pytest.approx(expected)
