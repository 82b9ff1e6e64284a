"""Tiny files of every task in the official format, each text field with words of its own."""

import json
from pathlib import Path

from experiments.downstream.task import Task


def words(field: str, number: int = 0) -> str:
    """The text of a field: three words that no other field and no other example has."""
    return " ".join(f"{field}w{part}n{number}" for part in range(3))


def _table(header: list[str], rows: list[dict[str, str]]) -> str:
    lines = ["\t".join(header)] + ["\t".join(row.get(name, "x") for name in header) for row in rows]
    return "\n".join(lines) + "\n"


_STSB_COLUMNS = [
    *("index", "genre", "filename", "year", "old_index", "source1", "source2"),
    *("sentence1", "sentence2", "score"),
]
_MNLI_COLUMNS = [
    *("index", "promptID", "pairID", "genre", "sentence1_binary_parse", "sentence2_binary_parse"),
    *("sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label"),
]
_TABLES = {
    "glue/sst2": (["sentence", "label"], {"sentence": "sentence"}, ["0", "1"]),
    "glue/mrpc": (
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        {"sentence1": "#1 String", "sentence2": "#2 String"},
        ["0", "1"],
    ),
    "glue/qqp": (
        ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        {"question1": "question1", "question2": "question2"},
        ["0", "1"],
    ),
    "glue/stsb": (
        _STSB_COLUMNS,
        {"sentence1": "sentence1", "sentence2": "sentence2"},
        ["1.234", "4.75"],
    ),
    "glue/mnli": (
        _MNLI_COLUMNS,
        {"premise": "sentence1", "hypothesis": "sentence2"},
        ["neutral", "contradiction", "entailment"],
    ),
    "glue/qnli": (
        ["index", "question", "sentence", "label"],
        {"question": "question", "sentence": "sentence"},
        ["entailment", "not_entailment"],
    ),
    "glue/rte": (
        ["index", "sentence1", "sentence2", "label"],
        {"sentence1": "sentence1", "sentence2": "sentence2"},
        ["entailment", "not_entailment"],
    ),
    "glue/wnli": (
        ["index", "sentence1", "sentence2", "label"],
        {"sentence1": "sentence1", "sentence2": "sentence2"},
        ["0", "1"],
    ),
}
_LABEL_COLUMN = {
    "glue/mrpc": "Quality",
    "glue/qqp": "is_duplicate",
    "glue/stsb": "score",
    "glue/mnli": "gold_label",
}
_FOLDERS = {
    "glue/cola": "CoLA",
    "glue/sst2": "SST-2",
    "glue/mrpc": "MRPC",
    "glue/qqp": "QQP",
    "glue/stsb": "STS-B",
    "glue/mnli": "MNLI",
    "glue/qnli": "QNLI",
    "glue/rte": "RTE",
    "glue/wnli": "WNLI",
    "superglue/boolq": "BoolQ",
    "superglue/cb": "CB",
    "superglue/copa": "COPA",
    "superglue/multirc": "MultiRC",
    "superglue/record": "ReCoRD",
    "superglue/rte": "RTE",
    "superglue/wic": "WiC",
    "superglue/wsc": "WSC",
}
_JSON_LABELS = {
    "superglue/boolq": [False, True],
    "superglue/cb": ["entailment", "contradiction", "neutral"],
    "superglue/copa": [0, 1],
    "superglue/rte": ["entailment", "not_entailment"],
    "superglue/wic": [False, True],
    "superglue/wsc": [False, True],
}


def write(task: Task, folder: Path, examples: int = 4) -> Path:
    """Writes the splits of a task below `folder` and returns it."""
    if task.name == "sni":
        return _write_instructions(folder, examples)
    place = folder / _FOLDERS[task.name]
    place.mkdir(parents=True, exist_ok=True)
    if task.suite == "superglue":
        lines = [json.dumps(_json_example(task, number)) for number in range(examples)]
        for name in ("train.jsonl", "val.jsonl"):
            (place / name).write_text("\n".join(lines) + "\n")
        return folder
    if task.name == "glue/cola":
        text = "".join(
            f"gj04\t{number % 2}\t{'' if number % 2 else '*'}\t{words('sentence', number)}\n"
            for number in range(examples)
        )
    else:
        header, columns, labels = _TABLES[task.name]
        label = _LABEL_COLUMN.get(task.name, "label")
        rows = [
            {column: words(field, number) for field, column in columns.items()}
            | {label: labels[number % len(labels)]}
            for number in range(examples)
        ]
        text = _table(header, rows)
    dev = ["dev_matched.tsv", "dev_mismatched.tsv"] if task.name == "glue/mnli" else ["dev.tsv"]
    for name in ("train.tsv", *dev):
        (place / name).write_text(text)
    return folder


def _json_example(task: Task, number: int) -> dict:
    if task.name == "superglue/multirc":
        answers = [
            {"text": words("answer", 10 * number + i), "label": i, "idx": i} for i in range(2)
        ]
        question = {"question": words("question", number), "answers": answers, "idx": 0}
        return {"passage": {"text": words("paragraph", number), "questions": [question]}}
    if task.name == "superglue/record":
        names = [f"entitiesw{part}n{number}" for part in range(3)]
        text = f"{words('passage', number)} {' '.join(names)}"
        entities = [
            {"start": text.index(name), "end": text.index(name) + len(name) - 1} for name in names
        ]
        query = {"query": f"{words('query', number)} @placeholder", "answers": [{"text": names[1]}]}
        return {"passage": {"text": text, "entities": entities}, "qas": [query]}
    example: dict = {field: words(field, number) for field in task.fields}
    if task.name == "superglue/wsc":
        one, two = (words(f"{span}_text", number) for span in ("span1", "span2"))
        example["text"] = f"{words('text', number)} {one} between {two}"
        example["target"] = {
            "span1_text": one,
            "span2_text": two,
            "span1_index": 3,
            "span2_index": 7,
        }
    labels = _JSON_LABELS[task.name]
    return example | {"label": labels[number % len(labels)], "idx": number}


def _write_instructions(folder: Path, examples: int) -> Path:
    lists = folder / "splits" / "default"
    lists.mkdir(parents=True)
    (folder / "tasks").mkdir()
    for name, listed in (("task1_a", "train_tasks.txt"), ("task2_b", "test_tasks.txt")):
        (lists / listed).write_text(f"{name}\n")
        task = {
            "Definition": [words("definition")],
            "Positive Examples": [
                {"input": words("positive_examples", i), "output": words("output", 100 + i)}
                for i in range(3)
            ],
            "Instances": [
                {"id": str(i), "input": words("input", i), "output": [words("output", i), "other"]}
                for i in range(examples)
            ],
        }
        (folder / "tasks" / f"{name}.json").write_text(json.dumps(task))
    return folder
