"""Scores read off a run: last and best epoch apart, and kept where comparing looks for them."""

import json

import pytest
from rich.console import Console

from experiments.downstream.protocols import PROTOCOLS
from experiments.downstream.scores import averages, read_scratch, scores_of_run, show, write_scores


def run(folder, values, seed=0, settings="a"):
    folder.mkdir()
    lines = [{"split": "train", "step": 1, "loss": 9.0}]
    lines += [
        {"split": "validation", "step": i, "matthews": m, "accuracy": a, "test_matthews": t}
        for i, (m, a, t) in enumerate(values)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return scores_of_run(
        folder,
        "glue/cola",
        seed,
        baselines={"validation": {"majority": {"matthews": 0.0, "accuracy": 0.7}}},
        facts={"examples": 10, "settings": settings},
    )


def test_last_and_best_epoch(tmp_path):
    first, second = run(tmp_path / "run", [(0.1, 0.9, 0.3), (0.5, 0.6, 0.2), (0.4, 0.8, 0.1)])
    assert (first["last"], first["best"], first["best_epoch"], first["epochs"]) == (0.4, 0.5, 2, 3)
    # The epoch is chosen by the headline, not anew for each metric.
    assert (second["last"], second["best"]) == (0.8, 0.6)
    assert (first["majority"], second["majority"]) == (0.0, 0.7)
    assert first["test_last"] == 0.1 and "test_last" not in second
    path = write_scores(tmp_path / "downstream", "glue/cola", [first, second])
    assert path == tmp_path / "downstream" / "glue_cola.json"
    assert json.loads(path.read_text()) == [first, second]


def test_averages_are_of_each_seed_and_say_what_is_in_them(tmp_path):
    parts = PROTOCOLS["ntng"].averages[0].parts
    by_task = {}
    for seed in (0, 1):
        for index, (task, metric) in enumerate(parts):
            by_task.setdefault(task, []).append(
                {"metric": metric, "seed": seed, "last": index / 10 + seed, "best": 1.0}
            )
    [(name, values, within)] = averages(PROTOCOLS["ntng"], by_task, "last")
    assert values == pytest.approx([0.4, 1.4]) and "9" in name
    assert "cola matthews" in within and "mnli accuracy_mismatched" in within


def test_table_shows_interval_and_baseline(tmp_path):
    scores = run(tmp_path / "a", [(0.4, 0.8, 0.1)]) + run(tmp_path / "b", [(0.6, 0.8, 0.1)], seed=1)
    console = Console(record=True, width=200)
    show(console, {"glue/cola": scores}, PROTOCOLS["ntng"])
    text = console.export_text()
    # Two seeds: t = 12.7 for one degree of freedom, standard error 0.1.
    assert "50.0 ± 127.1" in text and "70.0" in text
    assert "best epoch is chosen on the very examples" in text


def test_random_weights_stand_beside_only_under_the_same_settings(tmp_path):
    ours = run(tmp_path / "a", [(0.4, 0.8, 0.1)])
    theirs = run(tmp_path / "b", [(0.3, 0.7, 0.05)])
    others = run(tmp_path / "c", [(0.9, 0.9, 0.9)], settings="b")
    write_scores(tmp_path, "glue/cola", [*theirs, *others])
    scratch = read_scratch(tmp_path, {"glue/cola": ours})
    assert scratch == {"glue/cola": theirs}
    assert read_scratch(tmp_path, {"glue/cola": run(tmp_path / "d", [(1, 1, 1)], 0, "x")}) == {}
    console = Console(record=True, width=200)
    show(console, {"glue/cola": ours}, PROTOCOLS["demo"], scratch)
    rows = [line.split() for line in console.export_text().splitlines()]
    assert ["cola", "matthews", "40.0", "40.0", "30.0", "0.0"] in rows
    assert ["test", "part", "matthews", "10.0", "5.0"] in rows
