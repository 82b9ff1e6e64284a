"""Verdicts on simulated runs whose truth is known, and everything that is refused or left out."""

import dataclasses
import json
import math

import pytest

from experiments.comparison.compare import Options, compare
from experiments.comparison.margin import parse_margin
from experiments.comparison.runs import read_runs
from experiments.comparison.simulate import Planted, World, simulate, write_run
from experiments.comparison.verdict import Kind
from models.errors import UserError

WORLD = World()


def arms(*planted, seeds=6, budget=1.0, world=WORLD):
    return [simulate(world, one, seed, 0, budget) for one in planted for seed in range(seeds)]


def verdicts(runs, **options):
    found = compare(runs, options=Options(baseline="baseline", **options))
    return {r.method.label: r.verdict for block in found.blocks for r in block.results}


def test_clear_gain_and_clear_loss():
    found = verdicts(
        arms(Planted(), Planted(name="up", lower_by=0.1), Planted(name="down", lower_by=-0.1))
    )
    assert found["up"].kind is Kind.GAIN
    assert found["down"].kind is Kind.LOSS


def test_the_p_value_shown_is_that_of_the_verdict():
    # Among many losses, ranks of two-sided and of one-sided p values differ.
    losses = [Planted(name=f"down{i}", lower_by=-0.1) for i in range(6)]
    for effect in (0.005, 0.01, 0.015, 0.02, 0.025, 0.03):
        up = Planted(name="up", lower_by=effect)
        found = verdicts(arms(Planted(), up, *losses, seeds=4), margin=parse_margin("0.0001nats"))
        for verdict in found.values():
            assert (verdict.p_adjusted < 0.05) == (verdict.kind in (Kind.GAIN, Kind.LOSS))


def test_the_same_again_is_no_gain_with_enough_seeds_and_unknown_with_few():
    itself = Planted(name="itself")
    few = verdicts(arms(Planted(), itself, seeds=3), margin=parse_margin("1%"))["itself"]
    assert few.kind is Kind.CANNOT_TELL and few.seeds_needed > 3
    many = verdicts(arms(Planted(), itself, seeds=30))["itself"]
    assert many.kind is Kind.NO_GAIN


def test_the_baseline_against_itself_uses_every_other_seed():
    runs = arms(Planted(), seeds=8)
    (block,) = compare(runs, options=Options(baseline="baseline", against_itself=True)).blocks
    (result,) = block.results
    assert [run.seed for run in block.baseline.runs] == [0, 2, 4, 6]
    assert [run.seed for run in result.method.runs] == [1, 3, 5, 7]
    assert not result.estimate.paired
    assert result.verdict.kind in (Kind.NO_GAIN, Kind.CANNOT_TELL)


def test_two_seeds_say_nothing():
    found = verdicts(arms(Planted(), Planted(name="up", lower_by=1.0), seeds=2))["up"]
    assert found.kind is Kind.CANNOT_TELL and "3 finished seeds" in found.reason


def test_a_gain_below_the_margin_is_no_gain():
    world = dataclasses.replace(WORLD, run_noise=1e-5)
    runs = arms(Planted(), Planted(name="tiny", lower_by=0.001), world=world)
    assert verdicts(runs)["tiny"].kind is Kind.NO_GAIN
    assert verdicts(runs, margin=parse_margin("0.0005nats"))["tiny"].kind is Kind.GAIN


def test_diverged_runs_are_misses_never_dropped():
    runs = arms(Planted(), Planted(name="up", lower_by=0.1))
    one = [
        dataclasses.replace(run, final_loss=math.inf, diverged_at=9)
        if run.exp == "up" and run.seed < 1
        else run
        for run in runs
    ]
    assert verdicts(one)["up"].kind is Kind.CANNOT_TELL
    half = [
        dataclasses.replace(run, final_loss=math.inf, diverged_at=9)
        if run.exp == "up" and run.seed < 3
        else run
        for run in runs
    ]
    assert verdicts(half)["up"].kind is Kind.LOSS


def test_pairing_follows_the_order_of_the_data():
    runs = arms(Planted(), Planted(name="other"))
    (block,) = compare(runs, options=Options(baseline="baseline")).blocks
    assert block.results[0].estimate.paired
    for run in runs:
        if run.exp == "other":
            run.config["experiment"]["train"] = {"batch_size": 32}
    (block,) = compare(runs, options=Options(baseline="baseline")).blocks
    assert not block.results[0].estimate.paired


def test_a_second_budget_gives_the_slope():
    runs = arms(Planted(), Planted(name="other")) + arms(Planted(), budget=0.5)
    (block,) = compare(runs, options=Options(baseline="baseline")).blocks
    assert block.margin.loss == pytest.approx(WORLD.slope * math.log(1.05), rel=0.1)
    assert "two budgets" in block.margin.how


def test_a_bystander_moves_no_score():
    few = compare(arms(Planted(), Planted(name="a")), options=Options(baseline="baseline"))
    more = compare(
        arms(Planted(), Planted(name="a"), Planted(name="fast", speedup=2.0)),
        options=Options(baseline="baseline"),
    )
    scores = [{p.method: p.score for p in one.profiles} for one in (few, more)]
    assert scores[0] == {name: scores[1][name] for name in scores[0]}
    assert scores[0]["baseline"] == 0.75


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("budget", "90 s", "budget: 90 s against 60 s"),
        ("data", "f" * 64, "data: ffffffff against 00000000"),
        ("evaluation_set", "other", "evaluation set: other against"),
        ("evaluation_batches", "other", ""),
        ("tokenizer", "other", "tokenizer: other against"),
        ("reference", "another", "reference: another against simulated"),
    ],
)
def test_unlike_runs_are_refused_by_name(field, value, named):
    runs = arms(Planted(), Planted(name="other"))
    if field == "evaluation_batches":
        runs = [_with(run, field, "usual") for run in runs]
        named = "evaluation batches: other against usual"
    runs = [_with(run, field, value) if run.exp == "other" else run for run in runs]
    found = compare(runs, options=Options(baseline="baseline"))
    assert not found.blocks
    assert named in str(found.refused[0])
    with pytest.raises(UserError, match=field.split("_")[0]):
        compare(runs, options=Options(baseline="baseline", methods=("other",)))


def _with(run, field, value):
    return dataclasses.replace(
        run, conditions=dataclasses.replace(run.conditions, **{field: value})
    )


def test_no_baseline_and_misspelt_ones():
    runs = arms(Planted(), Planted(name="other"))
    with pytest.raises(UserError, match="--baseline=NAME is missing"):
        compare(runs)
    with pytest.raises(UserError, match="Did you mean baseline"):
        compare(runs, options=Options(baseline="baselin"))


def test_folders_of_every_kind(tmp_path):
    for run in arms(Planted(), Planted(name="up", divergence=0.4), seeds=4):
        write_run(run, tmp_path)
    folders = sorted((tmp_path / "baseline").iterdir())
    (folders[0] / "summary.json").unlink()
    (folders[1] / "summary.json").write_text("{half")
    (folders[2] / "summary.json").write_text('{"status": "finished"}')
    twice = tmp_path / "elsewhere" / folders[3].name
    twice.parent.mkdir()
    twice.mkdir()
    for name in ("config.json", "summary.json", "metrics.jsonl"):
        (twice / name).write_text((folders[3] / name).read_text())
    runs, left_out = read_runs([tmp_path])
    reasons = sorted(one.reason for one in left_out)
    begins = (
        "damaged: summary.json",
        "of another version: no",
        "seed 3 of baseline is there twice",
    )
    for reason, begin in zip(reasons, (*begins, "unfinished"), strict=True):
        assert reason.startswith(begin)
    assert len(runs) + len(left_out) == 9
    diverged = [run for run in runs if run.diverged_at is not None]
    assert diverged and all(math.isinf(run.final_loss) for run in diverged)


def _rewrite(name, change):
    def damage(folder):
        value = json.loads((folder / name).read_text())
        change(value)
        (folder / name).write_text(json.dumps(value))

    return damage


def _write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_write("config.json", b""), "damaged: config.json"),
        (_write("config.json", b"[]"), "not a JSON object"),
        (_write("metrics.jsonl", b'\xff\xfe\x00{}\n{"step": 1}'), "damaged: 'utf-8'"),
        (_write("metrics.jsonl", b""), "holds no validation"),
        (_write("metrics.jsonl", b'{"split": "validation"}'), "another version: no 'step'"),
        (
            _write("metrics.jsonl", b'{"step": 1, "split": "validation", "rst_s": null, "nll": 5}'),
            "a line without reference time",
        ),
        (_rewrite("summary.json", lambda v: v.pop("final")), "another version: no 'final'"),
        (_rewrite("summary.json", lambda v: v["final"].update(nll="low")), "damaged: could not"),
        (_rewrite("summary.json", lambda v: v.update(seconds=[1])), "seconds is not an object"),
        (_rewrite("summary.json", lambda v: v.update(sparsity={"a": 1})), "no 'by_path'"),
        (_rewrite("config.json", lambda v: v["plan"].update(stages=[])), "it plans no step"),
        (_rewrite("config.json", lambda v: v["experiment"].update(budget=60)), "another version"),
        (_rewrite("config.json", lambda v: v["experiment"].update(seed="a")), "damaged: invalid"),
    ],
)
def test_damaged_folders_are_left_out_with_the_reason(tmp_path, damage, reason):
    damage(write_run(simulate(WORLD, Planted(), 0), tmp_path))
    runs, (left_out,) = read_runs([tmp_path])
    assert not runs and reason in left_out.reason


def test_proxies_are_left_out(tmp_path):
    folder = write_run(simulate(WORLD, Planted(), 3), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["data"] = {"train_part": "held_out"}
    (folder / "config.json").write_text(json.dumps(config))
    runs, (left_out,) = read_runs([tmp_path])
    assert not runs and "proxy" in left_out.reason


def test_a_written_run_is_read_back(tmp_path):
    written = simulate(WORLD, Planted(), 3)
    folder = write_run(written, tmp_path)
    ((read,), _) = read_runs([folder])
    assert (read.seed, read.final_loss, read.steps) == (3, written.final_loss, written.steps)
    assert read.validation.loss.tolist() == pytest.approx(written.validation.loss.tolist())
    (folder / "metrics.jsonl").write_text((folder / "metrics.jsonl").read_text() + '{"step": 9')
    ((read,), _) = read_runs([folder])
    assert len(read.validation) == WORLD.evaluations


def test_empty_and_missing_folders(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        read_runs([tmp_path])
    with pytest.raises(UserError, match="no such folder"):
        read_runs([tmp_path / "nothing"])


def test_downstream_scores_that_contradict_the_loss(tmp_path):
    for run in arms(Planted(), Planted(name="up", lower_by=0.1), seeds=4):
        folder = write_run(run, tmp_path) / "downstream"
        folder.mkdir()
        last = (0.8 if run.exp == "baseline" else 0.7) + 0.001 * run.seed
        score = {"task": "rte", "metric": "accuracy", "seed": 0, "last": last, "best": last}
        (folder / "rte.json").write_text(json.dumps([score]))
    runs, _ = read_runs([tmp_path])
    (block,) = compare(runs, options=Options(baseline="baseline")).blocks
    (task,) = block.results[0].downstream
    assert task.found == "worse" and task.disagrees


def test_fine_tunings_of_one_run_are_one_score_on_its_test_part(tmp_path):
    for run in arms(Planted(), Planted(name="up"), seeds=2):
        folder = write_run(run, tmp_path) / "downstream"
        folder.mkdir()
        shift = 0.1 if run.exp == "up" else 0.0
        scores = [
            {"task": "kind", "metric": "accuracy", "seed": seed, "last": 0.0, "test_last": share}
            for seed, share in enumerate((0.6 + shift, 0.61 + shift, 0.62 + shift))
        ]
        (folder / "kind.json").write_text(json.dumps(scores))
    runs, _ = read_runs([tmp_path])
    (block,) = compare(runs, options=Options(baseline="baseline")).blocks
    (task,) = block.results[0].downstream
    assert (task.baseline, task.method) == pytest.approx((0.61, 0.71))
    assert (task.baseline_runs, task.method_runs, task.found) == (2, 2, "too few runs")


@pytest.mark.parametrize("text", ["5", "-1%", "0%", "x nats", ""])
def test_bad_margins(text):
    with pytest.raises(UserError, match="--margin"):
        parse_margin(text)
