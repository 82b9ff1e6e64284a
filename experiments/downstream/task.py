"""What a downstream task is: its fields, its labels, its metrics, and how a model reads it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from models.errors import UserError

# One example in the layout of the TFDS builder of its task: field -> text, and `label`.
Record = Mapping[str, Any]
# What the model reads: texts in turn (an encoder with a head), or one text that names its fields.
Reads = Literal["segments", "text"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One example as a model reads it."""

    # Texts in the order of the fields, between separators; an encoder reads these.
    segments: tuple[str, ...]
    # The same as one text that names every field, and what is to be answered; T5 reads these.
    inputs: str
    targets: str
    # Number of the class, or the score of a regression.
    label: float
    # Rows that are judged together have the same: answers to one question, one part of a set.
    group: str = ""
    # What counts as right, where that is a text.
    answers: tuple[str, ...] = ()
    # The answer that this row asks about.
    candidate: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One downstream task, by the names of its TFDS builder and those of its official files."""

    # Such as glue/cola.
    name: str
    # Classes with labels, a score, or free text.
    kind: Literal["classification", "regression", "text"] = "classification"
    # Text fields of a record, in the order in which a model reads them.
    fields: tuple[str, ...]
    # The words for class 0, 1, …, which T5 answers with.
    labels: tuple[str, ...] = ()
    # Names in `metrics.METRICS`; the first is the headline.
    metrics: tuple[str, ...]
    # Turns a record into rows; None: `plain_rows`.
    to_rows: "Callable[[Task, Record, Reads, str], Iterator[Row]] | None" = None
    # Its TFDS builder; None where there is none.
    tfds_name: str | None = None
    # Splits of the builder that are validated on, each under the group that it is judged as.
    tfds_validation: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"validation": ""}
    )
    # (folder, split) -> records of the official files; raises UserError naming file and line.
    read_files: "Callable[[Any, str], Iterator[Record]] | None" = None
    # (folder) -> the files of the task, for a digest; raises UserError where one is missing.
    find_files: "Callable[[Any], Sequence[Any]] | None" = None
    # (split) -> records of a task that is made from what every machine has.
    make_records: "Callable[[str], list[Record]] | None" = None
    # Splits beside train that have labels.
    held_out: tuple[str, ...] = ("validation",)
    # Tokens of an input, and of an answer, of T5; None: as the protocol says.
    text_lengths: tuple[int, int] | None = None

    @property
    def suite(self) -> str:
        return self.name.partition("/")[0]

    def rows(self, record: Record, reads: Reads, split: str) -> Iterator[Row]:
        """Yields the rows of a record."""
        yield from (self.to_rows or plain_rows)(self, record, reads, split)

    def answer(self, label: float) -> str:
        """What T5 is to say: the word for a class, or a score in steps of 0.2.

        Raffel et al. 2020 (arXiv 1910.10683), section 2.4.
        """
        if self.kind == "regression":
            return f"{round(label * 5) / 5:.1f}"
        return self.labels[int(label)]

    def label_of(self, answer: str) -> float:
        """The class or score that T5 has said; a class of -1, which is none, for anything else."""
        if self.kind == "regression":
            try:
                return float(answer)
            except ValueError:
                return -1.0
        answer = answer.strip()
        return float(self.labels.index(answer)) if answer in self.labels else -1.0

    def parse_label(self, text: str, place: str) -> float:
        """Reads a label of a file: its word or its number. Raises UserError for any other."""
        if self.kind == "regression":
            try:
                return float(text)
            except ValueError:
                raise UserError(f"{place}: label {text!r} is not a number.") from None
        if text in self.labels:
            return float(self.labels.index(text))
        if text.isdecimal() and int(text) < len(self.labels):
            return float(text)
        known = ", ".join(f"{number} ({word})" for number, word in enumerate(self.labels))
        raise UserError(f"{place}: unknown label {text!r}; {self.name} has {known}.")


def plain_rows(task: Task, record: Record, reads: Reads, split: str) -> Iterator[Row]:
    """Yields the one row of a record whose fields are read as they are."""
    del reads, split
    yield make_row(task, record)


def make_row(task: Task, record: Record, **changes: Any) -> Row:
    """Returns the row of a record's fields; `changes` replace what they would give."""
    texts = {field: str(record[field]) for field in task.fields}
    label = float(record["label"]) if "label" in record else 0.0
    row: dict[str, Any] = {
        "segments": tuple(texts.values()),
        "inputs": with_names(task.name.rpartition("/")[2], texts),
        "targets": task.answer(label) if task.kind != "text" else "",
        "label": label,
        "group": str(record.get("group", "")),
    }
    return Row(**(row | changes))


def with_names(task_name: str, texts: Mapping[str, str]) -> str:
    """Returns `cola sentence: …`, the form in which T5 reads all of its tasks (appendix D)."""
    return " ".join([task_name, *(f"{name}: {text}" for name, text in texts.items())])
