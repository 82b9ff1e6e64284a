"""Every task: its official files are read, and every field of its examples reaches the model."""

import math

import pytest

from experiments.downstream.registry import TASKS, find_task, names_of
from models.errors import UserError
from tests.experiments.downstream import official

FROM_FILES = [name for name, task in TASKS.items() if task.read_files]


def rows_of(name, folder, reads, split="train", examples=4):
    task = TASKS[name]
    official.write(task, folder, examples)
    return [
        row for record in task.read_files(folder, split) for row in task.rows(record, reads, split)
    ]


@pytest.mark.parametrize("reads", ["segments", "text"])
@pytest.mark.parametrize("name", FROM_FILES)
def test_each_field_reaches_the_model(name, reads, tmp_path):
    if name == "sni" and reads == "segments":
        pytest.skip("free text is for T5 only")
    row = rows_of(name, tmp_path, reads)[0]
    read = row.inputs if reads == "text" else " ".join(row.segments)
    for field in TASKS[name].fields:
        for word in official.words(field).split():
            assert word in read, f"{field} of {name} is lost"


@pytest.mark.parametrize("name", [name for name in FROM_FILES if name != "sni"])
def test_t5_answers_with_the_label(name, tmp_path):
    task = TASKS[name]
    for row in rows_of(name, tmp_path, "text"):
        if task.kind == "regression":
            assert row.targets in ("1.2", "4.8")
            assert abs(task.label_of(row.targets) - row.label) <= 0.1
        elif name == "superglue/record":
            assert row.targets in row.answers
        else:
            assert task.label_of(row.targets) == row.label
            assert task.label_of("nonsense") == -1


@pytest.mark.parametrize("name", [n for n in FROM_FILES if TASKS[n].labels])
def test_every_class_occurs(name, tmp_path):
    labels = {row.label for row in rows_of(name, tmp_path, "segments")}
    assert labels == set(map(float, range(len(TASKS[name].labels))))


def test_record_asks_about_every_entity_and_knows_the_right_one(tmp_path):
    rows = rows_of("superglue/record", tmp_path, "segments", examples=1)
    assert [row.label for row in rows] == [0, 1, 0]
    assert len({row.group for row in rows}) == 1
    assert all(row.candidate in row.segments[0] for row in rows)
    assert all("@placeholder" not in row.segments[0] for row in rows)


def test_multirc_answers_of_one_question_are_judged_together(tmp_path):
    rows = rows_of("superglue/multirc", tmp_path, "segments", examples=3)
    assert len(rows) == 6
    assert [row.group for row in rows[::2]] == [row.group for row in rows[1::2]]
    assert len({row.group for row in rows}) == 3


def test_wsc_marks_the_words_that_it_asks_about(tmp_path):
    row = rows_of("superglue/wsc", tmp_path, "segments")[0]
    assert "* span1_textw0n0 span1_textw1n0 span1_textw2n0 * between # span2" in row.segments[-1]


def test_mnli_keeps_its_two_sets_apart(tmp_path):
    rows = rows_of("glue/mnli", tmp_path, "segments", split="validation")
    assert [row.group for row in rows] == ["matched"] * 4 + ["mismatched"] * 4


def test_instructions_take_a_hundred_instances_and_two_examples(tmp_path):
    rows = rows_of("sni", tmp_path, "text", split="validation", examples=120)
    assert len(rows) == 100
    assert official.words("positive_examples", 1) in rows[0].inputs
    assert official.words("positive_examples", 2) not in rows[0].inputs
    assert rows[3].answers == (official.words("output", 3), "other")
    assert rows[3].targets not in rows[3].inputs


def test_suites_and_tasks_by_name():
    assert len(names_of("glue")) == 9 and len(names_of("superglue")) == 8
    assert len(names_of("embedded")) == 4
    assert names_of("glue/cola,digits,sni") == ["glue/cola", "digits", "sni"]
    with pytest.raises(UserError, match=r"Did you mean superglue/copa\?"):
        names_of("superglue/cop")


def test_scores_round_to_steps_of_a_fifth():
    task = find_task("glue/stsb")
    assert [task.answer(x) for x in (0.0, 2.49, 2.51, 5.0)] == ["0.0", "2.4", "2.6", "5.0"]
    assert task.label_of("high") == -1.0
    assert math.isclose(task.label_of("2.6"), 2.6)
