"""The eight tasks of SuperGLUE (Wang et al. 2019, arXiv 1905.00537), from TFDS or JSON lines.

Every field reaches the model: that COPA, WiC, WSC and MultiRC are about all of theirs is easily
lost where fields are handed on by position.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.downstream.files import SplitFiles, find, member, read_json_lines
from experiments.downstream.task import Reads, Record, Row, Task, make_row, with_names
from models.errors import UserError

_FILES: SplitFiles = {"train": [["train.jsonl"]], "validation": [["val.jsonl"]]}
_TEXT = (str,)
_LABEL = (str, bool, int)


def _superglue(
    name: str,
    folder: str,
    fields: tuple[str, ...],
    metrics: tuple[str, ...],
    labels: tuple[str, ...],
    *,
    flatten: Any = None,
    **more: Any,
) -> Task:
    find_here = partial(find, subfolders=(folder, name), files=_FILES)

    def read(place: Path, split: str) -> Iterator[Record]:
        for path in find_here(place, split=split):
            for line, value in read_json_lines(path):
                yield from (flatten or _plain)(task, value, line)

    def find_all(place: Path) -> Sequence[Path]:
        return [path for split in ("train", "validation") for path in find_here(place, split=split)]

    task = Task(
        name=f"superglue/{name}",
        fields=fields,
        labels=labels,
        metrics=metrics,
        tfds_name="super_glue/" + ("wsc.fixed" if name == "wsc" else name),
        read_files=read,
        find_files=find_all,
        **more,
    )
    return task


def _plain(task: Task, value: dict[str, Any], place: str) -> Iterator[Record]:
    record = {field: member(value, field, _TEXT, place) for field in task.fields}
    yield record | {"label": _label(task, value, place)}


def _label(task: Task, value: dict[str, Any], place: str) -> float:
    label = member(value, "label", _LABEL, place)
    return task.parse_label(str(int(label)) if isinstance(label, bool) else str(label), place)


def _flatten_wsc(task: Task, value: dict[str, Any], place: str) -> Iterator[Record]:
    target = member(value, "target", dict, place)
    record: dict[str, Any] = {"text": member(value, "text", _TEXT, place)}
    words = record["text"].split()
    for span in ("span1", "span2"):
        record[f"{span}_text"] = member(target, f"{span}_text", _TEXT, place)
        record[f"{span}_index"] = member(target, f"{span}_index", int, place)
        if not 0 <= record[f"{span}_index"] < len(words):
            raise UserError(
                f"{place}: {span}_index {record[f'{span}_index']} is outside of a text of "
                f"{len(words)} words."
            )
    yield record | {"label": _label(task, value, place)}


def _wsc_rows(task: Task, record: Record, reads: Reads, split: str) -> Iterator[Row]:
    """Marks both spans in the text, since a word may occur in it more than once."""
    del reads, split
    words = str(record["text"]).split()
    for span, mark in (("span1", "*"), ("span2", "#")):
        first = int(record[f"{span}_index"])
        last = min(first + len(str(record[f"{span}_text"]).split()), len(words)) - 1
        words[first] = f"{mark} {words[first]}"
        words[last] = f"{words[last]} {mark}"
    yield make_row(task, {**record, "text": " ".join(words)})


def _flatten_multirc(task: Task, value: dict[str, Any], place: str) -> Iterator[Record]:
    passage = member(value, "passage", dict, place)
    paragraph = member(passage, "text", _TEXT, place)
    for number, question in enumerate(member(passage, "questions", list, place)):
        for answer in member(question, "answers", list, place):
            yield {
                "paragraph": paragraph,
                "question": member(question, "question", _TEXT, place),
                "answer": member(answer, "text", _TEXT, place),
                "label": _label(task, answer, place),
                "group": f"{place}/{number}",
            }


def _multirc_rows(task: Task, record: Record, reads: Reads, split: str) -> Iterator[Row]:
    del reads, split
    index = record.get("idx")
    group = record["group"] if index is None else f"{index['paragraph']}/{index['question']}"
    yield make_row(task, {**record, "group": group})


def _flatten_record(task: Task, value: dict[str, Any], place: str) -> Iterator[Record]:
    passage = member(value, "passage", dict, place)
    text = member(passage, "text", _TEXT, place)
    entities = []
    for entity in member(passage, "entities", list, place):
        first, last = (member(entity, end, int, place) for end in ("start", "end"))
        if not 0 <= first <= last < len(text):
            raise UserError(f"{place}: entity {first} to {last} is outside of its passage.")
        entities.append(text[first : last + 1])
    for number, question in enumerate(member(value, "qas", list, place)):
        yield {
            "passage": text,
            "query": member(question, "query", _TEXT, place),
            "entities": entities,
            "answers": [
                member(answer, "text", _TEXT, place)
                for answer in member(question, "answers", list, place)
            ],
            "group": f"{place}/{number}",
        }


def _record_rows(task: Task, record: Record, reads: Reads, split: str) -> Iterator[Row]:
    """A row for each entity put into the gap, of which the likeliest counts; or text to text."""
    entities = sorted(set(record["entities"]))
    answers = tuple(record["answers"])
    index = record.get("idx")
    group = record["group"] if index is None else f"{index['passage']}/{index['query']}"
    passage = str(record["passage"]).replace("\n@highlight\n", ". ")
    if reads == "text":
        texts = {
            "query": str(record["query"]),
            "entities": ", ".join(entities),
            "passage": passage,
        }
        # Each right answer is an example to learn from; one is enough to be asked.
        for answer in dict.fromkeys(answers) if split == "train" else answers[:1]:
            yield Row(
                segments=(),
                inputs=with_names("record", texts),
                targets=answer,
                label=1.0,
                group=group,
                answers=answers,
            )
        return
    for entity in entities:
        query = str(record["query"]).replace("@placeholder", entity)
        yield Row(
            segments=(query, entity, passage),
            inputs="",
            targets="",
            label=float(entity in answers),
            group=group,
            answers=answers,
            candidate=entity,
        )


_FALSE_TRUE = ("False", "True")

BOOLQ = _superglue("boolq", "BoolQ", ("question", "passage"), ("accuracy",), _FALSE_TRUE)
CB = _superglue(
    "cb",
    "CB",
    ("premise", "hypothesis"),
    ("macro_f1", "accuracy"),
    ("entailment", "contradiction", "neutral"),
)
COPA = _superglue(
    "copa",
    "COPA",
    ("premise", "question", "choice1", "choice2"),
    ("accuracy",),
    ("choice1", "choice2"),
)
MULTIRC = _superglue(
    "multirc",
    "MultiRC",
    ("question", "answer", "paragraph"),
    ("f1a", "em"),
    _FALSE_TRUE,
    flatten=_flatten_multirc,
    to_rows=_multirc_rows,
)
RECORD = _superglue(
    "record",
    "ReCoRD",
    ("query", "entities", "passage"),
    ("record_f1", "record_em"),
    _FALSE_TRUE,
    flatten=_flatten_record,
    to_rows=_record_rows,
)
RTE = _superglue(
    "rte", "RTE", ("premise", "hypothesis"), ("accuracy",), ("entailment", "not_entailment")
)
WIC = _superglue("wic", "WiC", ("word", "sentence1", "sentence2"), ("accuracy",), _FALSE_TRUE)
WSC = _superglue(
    "wsc",
    "WSC",
    ("span1_text", "span2_text", "text"),
    ("accuracy",),
    _FALSE_TRUE,
    flatten=_flatten_wsc,
    to_rows=_wsc_rows,
)

SUPERGLUE = (BOOLQ, CB, COPA, MULTIRC, RECORD, RTE, WIC, WSC)
