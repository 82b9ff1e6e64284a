"""Official files as they are distributed, and what is said of others."""

import os
import pathlib

import pytest

from experiments.downstream.registry import TASKS
from models.errors import UserError

GLUE = pathlib.Path(
    os.environ.get(
        "KPD_GLUE", pathlib.Path(__file__).parents[3].parent / "shared" / "data" / "glue"
    )
)
needs_glue = pytest.mark.skipif(not GLUE.is_dir(), reason="no GLUE files here; set KPD_GLUE")


def records(name, folder, split="train"):
    return list(TASKS[name].read_files(pathlib.Path(folder), split))


@needs_glue
@pytest.mark.parametrize(
    ("name", "train", "validation", "ones"),
    [
        # Sizes as the sets' papers give them; ones: right answers among all of both.
        ("glue/cola", 8551, 1043, 6023 + 719),
        ("glue/sst2", 6920, 872, 3610 + 444),
        ("glue/mrpc", 4076, 1725, 2753 + 1147),
    ],
)
def test_real_files_load_as_they_are(name, train, validation, ones):
    found = {split: records(name, GLUE, split) for split in ("train", "validation")}
    assert (len(found["train"]), len(found["validation"])) == (train, validation)
    assert sum(record["label"] for split in found.values() for record in split) == ones
    texts = [record[field] for record in found["train"] for field in TASKS[name].fields]
    assert not any("\t" in text or "\ufeff" in text or not text.strip() for text in texts)
    if name == "glue/mrpc":
        assert sum('"' in text for text in texts) > 100


def test_byte_order_mark_quotes_and_odd_line_ends(tmp_path):
    text = (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
        '1\t1\t2\tHe said "no.\tIt was "yes\u2028indeed".\r\n'
    )
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        (tmp_path / name).write_bytes(text.encode())
    [record] = records("glue/mrpc", tmp_path)
    assert record["sentence1"] == 'He said "no.'
    assert record["sentence2"] == 'It was "yes\u2028indeed".'
    assert record["label"] == 1


def write(folder, text, name="train.tsv"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.mark.parametrize(
    ("task", "text", "said"),
    [
        ("glue/sst2", "sentence\tlabel\na b\t1\nc\n", r"train.tsv:3: 1 columns, not 2"),
        ("glue/sst2", "sentence\tlabel\na b\t2\n", r"train.tsv:2: unknown label '2'"),
        ("glue/sst2", "a b\t1\nc\tgood\n", r"train.tsv:2: unknown label 'good'"),
        ("glue/sst2", "a b\t1\n \t1\n", r"train.tsv:2: sentence is empty"),
        ("glue/sst2", "sentence\tlabel\n", r"train.tsv: has no examples"),
        ("glue/sst2", b"a b\t1\nc \xff\t0\n", r"train.tsv:2: not UTF-8"),
        ("glue/cola", "a\t1\tb\n", r"train.tsv:1: 3 columns, and no header with sentence, label"),
        ("glue/stsb", "a\tb\n", r"train.tsv:1: 2 columns, and no header"),
        ("glue/rte", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tyes\n", r":2: unknown label"),
    ],
)
def test_bad_tables_are_errors_with_file_and_line(task, text, said, tmp_path):
    with pytest.raises(UserError, match=said):
        records(task, write(tmp_path, text))


@pytest.mark.parametrize(
    ("task", "text", "said"),
    [
        ("superglue/cb", '{"premise": "a"\n', r"train.jsonl:1: not JSON"),
        ("superglue/cb", '{"premise": "a", "label": "neutral"}\n', r":1: no 'hypothesis'"),
        (
            "superglue/cb",
            '{"premise": "a", "hypothesis": "b", "label": "maybe"}\n',
            r":1: unknown label 'maybe'; superglue/cb has 0 \(entailment\)",
        ),
        ("superglue/cb", '{"premise": "a", "hypothesis": " "}\n', r":1: 'hypothesis' is empty"),
        ("superglue/boolq", '\n["a"]\n', r"train.jsonl:2: not a JSON object"),
        (
            "superglue/wsc",
            '{"text": "a b", "label": true, "target": {"span1_text": "a", "span1_index": 0,'
            ' "span2_text": "b", "span2_index": 7}}\n',
            r":1: span2_index 7 is outside of a text of 2 words",
        ),
    ],
)
def test_bad_json_lines_are_errors_with_file_and_line(task, text, said, tmp_path):
    with pytest.raises(UserError, match=said):
        records(task, write(tmp_path, text, "train.jsonl"))


def test_missing_split_says_what_was_looked_for(tmp_path):
    write(tmp_path / "RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n")
    assert len(records("glue/rte", tmp_path)) == 1
    with pytest.raises(UserError, match=r"no validation split: looked for dev.tsv in .*RTE"):
        records("glue/rte", tmp_path, "validation")
    with pytest.raises(UserError, match="no such folder"):
        records("glue/rte", tmp_path / "elsewhere")


def test_known_damage_of_qqp_is_left_out(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write(tmp_path, header + "1\t2\t3\ta\tb\t1\n4\t5\t6\tcut\n7\t8\t9\tc\t\t0\n")
    assert len(records("glue/qqp", tmp_path)) == 1
