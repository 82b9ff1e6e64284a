"""Super-NaturalInstructions (Wang et al. 2022, arXiv 2204.07705), in its JSON layout, for T5."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.downstream.files import lines_of, member
from experiments.downstream.task import Reads, Record, Row, Task
from models.errors import UserError

# What nanoT5 and Tk-Instruct take of each task (Kaddour et al. 2023's evaluation follows them).
_MOST_INSTANCES = 100
_POSITIVE_EXAMPLES = 2
_LISTS = {"train": "train_tasks.txt", "validation": "test_tasks.txt"}


def _task_files(folder: Path, split: str) -> list[tuple[str, Path]]:
    """Returns (place in the list of splits/default/, file in tasks/) of a split's tasks."""
    folder = Path(folder).expanduser()
    listed = folder / "splits" / "default" / _LISTS[split]
    if not listed.is_file():
        raise UserError(
            f"data.dir={folder}: no {split} split: looked for {listed}; data.dir is the folder of "
            "natural-instructions, with tasks/ and splits/default/."
        )
    found = []
    for place, name in lines_of(listed):
        path = folder / "tasks" / f"{name.strip()}.json"
        if not path.is_file():
            raise UserError(f"{place}: {path} is not there.")
        found.append((place, path))
    if not found:
        raise UserError(f"{listed}: lists no task.")
    return found


def _find(folder: Path) -> Sequence[Path]:
    return [path for split in _LISTS for _, path in _task_files(folder, split)]


def _read(folder: Path, split: str) -> Iterator[Record]:
    for _, path in _task_files(folder, split):
        try:
            task = json.loads(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8: {error.reason}.") from None
        except json.JSONDecodeError as error:
            raise UserError(f"{path}:{error.lineno}: not JSON: {error.msg}.") from None
        definition = member(task, "Definition", (str, list), str(path))
        examples = member(task, "Positive Examples", list, str(path))[:_POSITIVE_EXAMPLES]
        for number, instance in enumerate(member(task, "Instances", list, str(path))):
            if number == _MOST_INSTANCES:
                break
            place = f"{path}: instance {number}"
            outputs = member(instance, "output", (str, list), place)
            yield {
                "definition": definition if isinstance(definition, str) else " ".join(definition),
                "positive_examples": [
                    (
                        member(example, "input", (str,), str(path)),
                        member(example, "output", (str,), str(path)),
                    )
                    for example in examples
                ],
                "input": member(instance, "input", (str,), place),
                "output": [outputs] if isinstance(outputs, str) else outputs,
                "group": path.stem,
            }


def prompt(record: Record) -> str:
    """Returns the definition, two examples and the input, in the form of Tk-Instruct."""
    parts = [f"Definition: {_ended(record['definition'])}\n\n"]
    for number, (given, answer) in enumerate(record["positive_examples"], start=1):
        parts.append(
            f" Positive Example {number} -\nInput: {_ended(given)}\n Output: {_ended(answer)}\n\n"
        )
    parts.append(
        f"Now complete the following example -\nInput: {_ended(record['input'])}\nOutput: "
    )
    return "".join(parts)


def _ended(text: Any) -> str:
    """Returns the text, ended by a full stop where it has no other end."""
    text = str(text).strip()
    return text if text.endswith((".", "!", "?", ":", ";", ",")) else f"{text}."


def _rows(task: Task, record: Record, reads: Reads, split: str) -> Iterator[Row]:
    del task, reads, split
    answers = tuple(str(answer) for answer in record["output"])
    if not answers:
        return
    yield Row(
        segments=(),
        inputs=prompt(record),
        # The first of several right answers is learnt from; all count when it is judged.
        targets=answers[0],
        label=0.0,
        group=str(record["group"]),
        answers=answers,
    )


SNI = Task(
    name="sni",
    kind="text",
    fields=("definition", "positive_examples", "input"),
    metrics=("rouge_l",),
    to_rows=_rows,
    read_files=_read,
    find_files=_find,
    text_lengths=(1024, 128),
)
