"""Four tasks made from the embedded corpus, so that models can be judged without any download.

Examples to learn from come from documents that pre-training reads too, as text without labels;
examples to be judged on only from documents that it does not (its validation documents), and none
of whose text stands in a document that it reads. Which documents those are is decided by the same
hash of the document, at the share of `HELD_OUT_FRACTION`.
"""

import ast
import functools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from experiments.data import corpus
from experiments.data.config import DataConfig
from experiments.data.documents import split_of
from experiments.downstream.task import Record, Task

# Raise it when the same corpus comes to give other examples.
VERSION = 2
HELD_OUT_FRACTION = DataConfig.validation_fraction
_MOST = {"train": 6000, "validation": 400, "test": 800}
_SPLITS = ("validation", "test")
# Characters of a text, or of two texts together: about 64 tokens of a small vocabulary.
_CHARS = 160
_PASSAGE_LINES = 5
_PASSAGE_WORDS = 12

# A record with its texts that must not stand in a document trained on, the first of which decides
# into which held-out part it goes.
Found = tuple[tuple[str, ...], Record]
# (split of the documents) -> records
Maker = Callable[[str], Iterator[Found]]


def _examples(maker: Maker, name: str, split: str) -> list[Record]:
    """Returns a fixed choice of a task's examples, in a fixed random order."""
    found = list(maker("train" if split == "train" else "validation"))
    random.Random(f"{name}/{split}").shuffle(found)
    if split != "train":
        found = _unseen(found, split)
    return [record for _, record in found[: _MOST[split]]]


def _unseen(found: list[Found], split: str) -> list[Found]:
    """Returns the first of a held-out part that ask about nothing in the text trained on."""
    seen = _trained_text()
    unseen: list[Found] = []
    for texts, record in found:
        # Halves by a hash of what is asked about, so that no text is asked about in both.
        if _half(texts[0]) == split and not any(_squeezed(text) in seen for text in texts):
            unseen.append((texts, record))
        if len(unseen) == _MOST[split]:
            break
    return unseen


@functools.cache
def _documents(split: str) -> list[tuple[str, str]]:
    return [
        (digest, text.decode())
        for digest, text in corpus.documents()
        if split_of(text, HELD_OUT_FRACTION) == split
    ]


@functools.cache
def _trained_text() -> str:
    return "\n".join(_squeezed(_without_rules(text)) for _, text in _documents("train"))


def _without_rules(text: str) -> str:
    """Returns the text without repeated signs, such as lines drawn of them."""
    return re.sub(r"([^\w\s])\1{3,}", r"\1", text)


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _half(key: str) -> str:
    return _SPLITS[sha256(_squeezed(key).encode()).digest()[0] % 2]


class _Function(NamedTuple):
    """A class or function of a document, as the tasks show it."""

    kind: str
    docstring: str
    # Its name, arguments and the beginning of its body, without the docstring.
    code: str


@functools.cache
def _functions(text: str) -> list[_Function]:
    """Returns the classes and functions of a document that have a docstring of some words."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # prose, or code of another Python
        return []
    methods = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for inner in node.body
    }
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        docstring = ast.get_docstring(node)
        if docstring is None or len(docstring.split()) < 4:
            continue
        kind = "method" if id(node) in methods else "function"
        head = node.name
        if isinstance(node, ast.ClassDef):
            kind = "class"
        else:
            head = f"{node.name}({ast.unparse(node.args)})"
        found.append(_Function(kind, docstring, f"{head}: {_beginning(node.body[1:])}"))
    return found


def _beginning(body: list[ast.stmt]) -> str:
    """Returns so much of the code of a body as a text can hold."""
    code = ""
    for statement in body:
        if len(code) > _CHARS or isinstance(statement, ast.FunctionDef | ast.ClassDef):
            break
        code += ast.unparse(statement) + "\n"
    return code


def _cut(text: str, chars: int = _CHARS) -> str:
    """Returns the whole words that fit into `chars`, with single spaces."""
    words = _squeezed(text[: 4 * chars])
    return words if len(words) <= chars else words[: chars + 1].rpartition(" ")[0]


def _pairs(
    name: str, split: str, parts_of: Callable[[str], Iterator[tuple[str, str]]]
) -> Iterator[tuple[str, str, int]]:
    """Yields every first part with its own second one, and with one of another document.

    So neither part alone says anything of the label.
    """
    owned = [
        (number, first, second)
        for number, (_, text) in enumerate(_documents(split))
        for first, second in parts_of(text)
    ]
    draw = random.Random(f"{name}/{split}")
    for number, first, second in owned:
        other = draw.choice(owned)
        while other[0] == number or other[2] == second:
            other = draw.choice(owned)
        yield first, second, 1
        yield first, other[2], 0


def _docstring(split: str) -> Iterator[Found]:
    """Does this docstring belong to this function?"""

    def parts_of(text: str) -> Iterator[tuple[str, str]]:
        for kind, docstring, code in _functions(text):
            first, second = _cut(docstring, _CHARS // 2), _cut(code, _CHARS // 2)
            if kind != "class" and first and second:
                yield first, second

    for docstring, code, label in _pairs("docstring", split, parts_of):
        yield (docstring,), {"docstring": docstring, "code": code, "label": label}


def _continuation(split: str) -> Iterator[Found]:
    """Does the second text go on from the first?"""

    def parts_of(text: str) -> Iterator[tuple[str, str]]:
        # The first passages are licences, which are alike.
        for passage in _passages(text)[2:]:
            words = passage.split()
            yield " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])

    for first, second, label in _pairs("continuation", split, parts_of):
        yield (first, second), {"first": first, "second": second, "label": label}


def _kind(split: str) -> Iterator[Found]:
    """What does this docstring describe?"""
    for _, text in _documents(split):
        for kind, docstring, _ in _functions(text):
            shown = _cut(docstring)
            yield (shown,), {"docstring": shown, "label": _KINDS.index(kind)}


def _passages(text: str) -> list[str]:
    """Returns parts of some lines each, without repeated signs and too short ones."""
    lines = _without_rules(text).split("\n")
    parts = ["\n".join(lines[i : i + _PASSAGE_LINES]) for i in range(0, len(lines), _PASSAGE_LINES)]
    return [cut for part in parts if len((cut := _cut(part)).split()) >= _PASSAGE_WORDS]


def _shuffled(split: str) -> Iterator[Found]:
    """Is this passage intact, or are its words in another order?"""
    for digest, text in _documents(split):
        draw = random.Random(f"shuffled/{digest}")
        for passage in _passages(text):
            words = passage.split()
            intact = draw.random() < 0.5
            if len(set(words)) < _PASSAGE_WORDS:
                continue  # a list of the same sign, in any order
            while not intact and " ".join(words) == passage:
                draw.shuffle(words)
            yield (passage,), {"passage": " ".join(words), "label": int(intact)}


def _embedded(maker: Maker, fields: Sequence[str], labels: Sequence[str], *metrics: str) -> Task:
    name = maker.__name__.lstrip("_")
    more: dict[str, Any] = {"make_records": partial(_examples, maker, name), "held_out": _SPLITS}
    return Task(
        name=f"embedded/{name}",
        fields=tuple(fields),
        labels=tuple(labels),
        metrics=metrics,
        **more,
    )


_KINDS = ("function", "method", "class")

EMBEDDED = (
    _embedded(_docstring, ("docstring", "code"), ("other", "own"), "accuracy", "f1"),
    _embedded(_shuffled, ("passage",), ("shuffled", "intact"), "accuracy", "f1"),
    _embedded(_continuation, ("first", "second"), ("other", "next"), "accuracy", "f1"),
    _embedded(_kind, ("docstring",), _KINDS, "accuracy", "macro_f1"),
)
