"""What a model must beat: the most frequent answer, and a linear model over words."""

import collections
import itertools
from collections.abc import Sequence

import numpy as np

from experiments.downstream.metrics import Held, Predicted, evaluate
from experiments.downstream.task import Row, Task

# Rows beyond these add time, and to a linear model little else.
_MOST_ROWS = 20_000
_REGULARISATION = (0.01, 0.1, 1.0)


def held_of(rows: Sequence[Row]) -> Held:
    """Returns what is known of rows."""
    return Held(
        labels=np.array([row.label for row in rows], np.float32),
        groups=[row.group for row in rows],
        answers=[row.answers for row in rows],
    )


def majority(task: Task, train: Sequence[Row], rows: Sequence[Row]) -> dict[str, float]:
    """Scores one answer to all: the most frequent of training, or the mean of a regression."""
    if task.kind == "regression":
        label = float(np.mean([row.label for row in train]))
    else:
        label = collections.Counter(row.label for row in train).most_common(1)[0][0]
    text = collections.Counter(row.targets for row in train).most_common(1)[0][0]
    predicted = Predicted(
        labels=np.full(len(rows), label, np.float32),
        scores=np.zeros(len(rows)),
        texts=[row.candidate or text for row in rows],
    )
    return evaluate(task, predicted, held_of(rows))


def bag_of_words(task: Task, train: Sequence[Row], rows: Sequence[Row]) -> dict[str, float] | None:
    """Scores a logistic regression over the words of each segment and those that two share.

    Its regularisation is chosen on a fifth of the training rows. None for other tasks than
    classification.
    """
    if task.kind != "classification" or not train[0].segments:
        return None
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    train = train[:_MOST_ROWS]
    words = CountVectorizer(binary=True, token_pattern=r"\w+|[^\w\s]")
    words.fit([text for row in train for text in row.segments])

    def features(some: Sequence[Row]):
        parts = [
            words.transform(texts) for texts in zip(*(row.segments for row in some), strict=True)
        ]
        shared = [a.multiply(b) for a, b in itertools.pairwise(parts)]
        counts = [one.sum(axis=1) for one in shared]
        return hstack([*parts, *shared, *counts]).tocsr()

    seen, labels = features(train), np.array([row.label for row in train])
    cut = len(train) * 4 // 5
    if len(np.unique(labels[:cut])) < 2:
        return None  # nothing to tell apart
    best, chosen = -1.0, _REGULARISATION[0]
    for strength in _REGULARISATION:
        model = LogisticRegression(C=strength, max_iter=300).fit(seen[:cut], labels[:cut])
        score = model.score(seen[cut:], labels[cut:])
        if score > best:
            best, chosen = score, strength
    model = LogisticRegression(C=chosen, max_iter=300).fit(seen, labels)
    asked = features(rows)
    predicted = Predicted(
        labels=model.predict(asked).astype(np.float32),
        scores=model.predict_proba(asked)[:, -1],
        texts=[row.candidate for row in rows],
    )
    return evaluate(task, predicted, held_of(rows))
