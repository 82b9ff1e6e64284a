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
from typing import Any

from experiments.data import corpus
from experiments.data.config import DataConfig
from experiments.data.documents import split_of
from experiments.downstream.task import Record, Task

# Raise it when the same corpus comes to give other examples.
VERSION = 1
HELD_OUT_FRACTION = DataConfig.validation_fraction
_MOST = {"train": 3000, "validation": 400, "test": 400}
_SPLITS = ("validation", "test")
_PASSAGE_LINES = 5
_PASSAGE_CHARS = 180
_PASSAGE_WORDS = 12

# A record with its texts that must not stand in a document trained on, the first of which decides
# into which held-out part it goes.
Found = tuple[tuple[str, ...], Record]
# (document, randomness of its own) -> records
Maker = Callable[[str, random.Random], Iterator[Found]]


def _examples(maker_name: str, split: str) -> list[Record]:
    """Returns a fixed choice of a task's examples, in a fixed random order."""
    makers: dict[str, Maker] = {
        "docstring": _docstring,
        "shuffled": _shuffled,
        "kind": _kind,
    }
    inside = "train" if split == "train" else "validation"
    found: list[Found] = []
    if maker_name == "document":
        found = list(_document(inside))
    else:
        for digest, text in _documents(inside):
            found += makers[maker_name](text, random.Random(f"{maker_name}/{digest}"))
    if split != "train":
        seen = _trained_text()
        found = [one for one in found if not any(_squeezed(text) in seen for text in one[0])]
        # Halves by a hash of what is asked about, so that no text is asked about in both.
        found = [one for one in found if _half(one[0][0]) == split]
    records = [record for _, record in found]
    random.Random(f"{maker_name}/{split}").shuffle(records)
    return records[: _MOST[split]]


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


@functools.cache
def _functions(text: str) -> list[tuple[str, str, str]]:
    """Returns (kind, docstring, code without it) of the classes and functions of a document."""
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
        if isinstance(node, ast.ClassDef):
            kind = "class"
        else:
            kind = "method" if id(node) in methods else "function"
        found.append((kind, _cut(docstring), _cut(_beginning(node.body[1:]))))
    return found


def _beginning(body: list[ast.stmt]) -> str:
    """Returns so much of the code of a body as a passage can hold."""
    code = ""
    for statement in body:
        if len(code) > _PASSAGE_CHARS or isinstance(statement, ast.FunctionDef | ast.ClassDef):
            break
        code += ast.unparse(statement) + "\n"
    return code


def _cut(text: str) -> str:
    """Returns the whole words that fit into a passage, with single spaces."""
    words = _squeezed(text[: 4 * _PASSAGE_CHARS])
    return words if len(words) <= _PASSAGE_CHARS else words[: _PASSAGE_CHARS + 1].rpartition(" ")[0]


def _docstring(text: str, draw: random.Random) -> Iterator[Found]:
    """Does this docstring belong to this code? If not, to other code of the same document."""
    functions = [one for one in _functions(text) if one[0] != "class" and len(one[2].split()) > 4]
    for index, (_, docstring, code) in enumerate(functions):
        others = [one[2] for one in functions[:index] + functions[index + 1 :]]
        if not others:
            continue
        for label, shown in enumerate((draw.choice(others), code)):
            yield (docstring,), {"docstring": docstring, "code": shown, "label": label}


def _kind(text: str, draw: random.Random) -> Iterator[Found]:
    """What does this docstring describe?"""
    del draw
    for kind, docstring, _ in _functions(text):
        yield (docstring,), {"docstring": docstring, "label": _KINDS.index(kind)}


def _passages(text: str) -> list[str]:
    """Returns parts of some lines each, without repeated signs and too short ones."""
    lines = _without_rules(text).split("\n")
    parts = ["\n".join(lines[i : i + _PASSAGE_LINES]) for i in range(0, len(lines), _PASSAGE_LINES)]
    return [cut for part in parts if len((cut := _cut(part)).split()) >= _PASSAGE_WORDS]


def _shuffled(text: str, draw: random.Random) -> Iterator[Found]:
    """Is this passage intact, or are its words in another order?"""
    for passage in _passages(text):
        words = passage.split()
        intact = draw.random() < 0.5
        if len(set(words)) < _PASSAGE_WORDS:
            continue  # a list of the same sign, in any order
        while not intact and " ".join(words) == passage:
            draw.shuffle(words)
        yield (passage,), {"passage": " ".join(words), "label": int(intact)}


def _document(split: str) -> Iterator[Found]:
    """Are these two passages from one document?"""
    documents = [(digest, _passages(text)) for digest, text in _documents(split)]
    documents = [(digest, passages) for digest, passages in documents if len(passages) >= 4]
    for index, (digest, passages) in enumerate(documents):
        draw = random.Random(f"document/{digest}")
        # The first passages are licences, which are alike.
        for number, passage in enumerate(passages[2:], start=2):
            same = draw.random() < 0.5
            other = draw.randrange(len(documents) - 1)
            there = passages if same else documents[other + (other >= index)][1]
            second = there[draw.randrange(2, len(there))]
            if same and second == passages[number]:
                continue
            yield (passage, second), {"passage1": passage, "passage2": second, "label": int(same)}


def _embedded(name: str, fields: Sequence[str], labels: Sequence[str], *metrics: str) -> Task:
    more: dict[str, Any] = {"make_records": partial(_examples, name), "held_out": _SPLITS}
    return Task(
        name=f"embedded/{name}",
        fields=tuple(fields),
        labels=tuple(labels),
        metrics=metrics,
        **more,
    )


_KINDS = ("function", "method", "class")

EMBEDDED = (
    _embedded("docstring", ("docstring", "code"), ("other", "own"), "accuracy", "f1"),
    _embedded("shuffled", ("passage",), ("shuffled", "intact"), "accuracy", "f1"),
    _embedded("document", ("passage1", "passage2"), ("different", "same"), "accuracy", "f1"),
    _embedded("kind", ("docstring",), _KINDS, "accuracy", "macro_f1"),
)
