"""The nine tasks of GLUE (Wang et al. 2019, arXiv 1804.07461), from TFDS or the official files."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments.downstream.files import SplitFiles, Table, find
from experiments.downstream.task import Record, Task

_USUAL: SplitFiles = {"train": [["train.tsv"]], "validation": [["dev.tsv"]]}


def _glue(
    name: str,
    folder: str,
    columns: dict[str, str],
    metrics: tuple[str, ...],
    labels: tuple[str, ...] = (),
    *,
    files: SplitFiles = _USUAL,
    without_header: tuple[str, ...] | None = None,
    skips_damaged: bool = False,
    groups: dict[str, str] | None = None,
    tfds_validation: dict[str, str] | None = None,
) -> Task:
    """Makes a task; `columns` names the column of each text field and of the label."""
    table = Table(columns=columns, without_header=without_header, skips_damaged=skips_damaged)
    find_here = partial(find, subfolders=(folder, name), files=files)
    fields = tuple(field for field in columns if field != "label")

    def read(place: Path, split: str) -> Iterator[Record]:
        for path in find_here(place, split=split):
            group = (groups or {}).get(path.name, "")
            for line, record in table.read(path):
                label = task.parse_label(record["label"], line)
                yield record | {"label": label, "group": group}

    def find_all(place: Path) -> Sequence[Path]:
        return [path for split in ("train", "validation") for path in find_here(place, split=split)]

    task = Task(
        name=f"glue/{name}",
        kind="classification" if labels else "regression",
        fields=fields,
        labels=labels,
        metrics=metrics,
        tfds_name=f"glue/{name}",
        tfds_validation=tfds_validation or {"validation": ""},
        read_files=read,
        find_files=find_all,
    )
    return task


_TWO_SENTENCES = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}
_ENTAILMENT = ("entailment", "not_entailment")

COLA = _glue(
    "cola",
    "CoLA",
    {"sentence": "sentence", "label": "label"},
    ("matthews", "accuracy"),
    ("unacceptable", "acceptable"),
    # GLUE's dev set is the two public ones together; a folder may hold them apart.
    files={
        "train": [["train.tsv"], ["in_domain_train.tsv"]],
        "validation": [
            ["dev.tsv", "dev_out_of_domain.tsv"],
            ["in_domain_dev.tsv", "out_of_domain_dev.tsv"],
        ],
    },
    without_header=("source", "label", "star", "sentence"),
)
SST2 = _glue(
    "sst2",
    "SST-2",
    {"sentence": "sentence", "label": "label"},
    ("accuracy",),
    ("negative", "positive"),
    without_header=("sentence", "label"),
)
MRPC = _glue(
    "mrpc",
    "MRPC",
    {"sentence1": "#1 String", "sentence2": "#2 String", "label": "Quality"},
    ("f1", "accuracy"),
    ("not_equivalent", "equivalent"),
    files={
        "train": [["train.tsv"], ["msr_paraphrase_train.txt"]],
        "validation": [["dev.tsv"], ["msr_paraphrase_test.txt"]],
    },
)
QQP = _glue(
    "qqp",
    "QQP",
    {"question1": "question1", "question2": "question2", "label": "is_duplicate"},
    ("f1", "accuracy"),
    ("not_duplicate", "duplicate"),
    skips_damaged=True,
)
STSB = _glue(
    "stsb",
    "STS-B",
    {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"},
    ("pearson", "spearman"),
)
MNLI = _glue(
    "mnli",
    "MNLI",
    {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"},
    ("accuracy_matched", "accuracy_mismatched"),
    ("entailment", "neutral", "contradiction"),
    files={
        "train": [["train.tsv"]],
        "validation": [["dev_matched.tsv", "dev_mismatched.tsv"]],
    },
    groups={"dev_matched.tsv": "matched", "dev_mismatched.tsv": "mismatched"},
    tfds_validation={
        "validation_matched": "matched",
        "validation_mismatched": "mismatched",
    },
)
QNLI = _glue(
    "qnli",
    "QNLI",
    {"question": "question", "sentence": "sentence", "label": "label"},
    ("accuracy",),
    _ENTAILMENT,
)
RTE = _glue("rte", "RTE", _TWO_SENTENCES, ("accuracy",), _ENTAILMENT)
WNLI = _glue("wnli", "WNLI", _TWO_SENTENCES, ("accuracy",), _ENTAILMENT[::-1])

GLUE = (COLA, SST2, MRPC, QQP, STSB, MNLI, QNLI, RTE, WNLI)
