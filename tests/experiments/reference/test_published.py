"""Published tables: what they answer, what they refuse, and what they are checked for."""

import dataclasses
import json
import pathlib

import pytest

from experiments import registry
from experiments.budget import StageCost, make_plan, parse_budget
from experiments.reference import find_reference, identify
from experiments.reference.published import Published
from experiments.reference.store import read_reference, shipped_folder
from models.errors import UserError


@pytest.fixture
def ntng():
    return find_reference("ntng")


def paper(name, **model):
    experiment = registry.resolve(name, "paper")
    return dataclasses.replace(experiment, model=dataclasses.replace(experiment.model, **model))


@pytest.mark.parametrize(
    ("name", "budget", "steps"),
    [
        ("bert_baseline", "24h", 31957),
        ("bert_baseline", "6h", 7989),
        ("t5_baseline", "24h", 83802),
        ("t5_baseline", "12h", 41901),
    ],
)
def test_paper_scale_is_planned_as_published(ntng, name, budget, steps):
    charged = ntng.known(identify(paper(name)))
    plan = make_plan(parse_budget(budget), [StageCost("train", 1.0, charged.seconds)])
    assert plan.total_steps == steps


def test_time_here_does_not_count(ntng):
    program = identify(paper("t5_baseline"))
    assert ntng.convert(program, None, None) == ntng.known(program)
    assert ntng.known(program).seconds == 1.031


def test_slip_at_seven_layers_is_not_used(ntng):
    found = ntng.known(identify(paper("bert_baseline", num_layers=7)))
    assert found.low == pytest.approx(12 * 0.09188) and found.high == pytest.approx(12 * 0.1186)
    assert found.low < found.seconds < found.high
    assert "the published 0.01052 s is not used: a slip of the decimal point" in found.how


def test_a_mean_number_of_layers_lies_between_its_neighbours(ntng):
    found = ntng.known(identify(paper("bert_baseline"), "train_last", layers=11.75))
    assert found.seconds == pytest.approx(12 * (0.25 * 0.1589 + 0.75 * 0.1722))
    assert found.low == pytest.approx(12 * 0.1589) and found.high == pytest.approx(12 * 0.1722)


def test_calls_beside_training(ntng):
    experiment = paper("bert_baseline")
    assert ntng.known(identify(experiment, "forward", 3072)).seconds == pytest.approx(24 * 0.09285)
    sophia = dataclasses.replace(
        identify(experiment, "hessian", 768),
        details={**identify(experiment).details, "optimizer": "sophia"},
    )
    assert ntng.known(sophia).seconds == pytest.approx(6 * 0.2253)
    # The published figure of T5 with Sophia has its Hessian passes in it.
    t5 = identify(paper("t5_baseline"))
    with_sophia = {**t5.details, "optimizer": "sophia"}
    assert ntng.known(dataclasses.replace(t5, details=with_sophia)).seconds == 1.156
    assert ntng.known(dataclasses.replace(t5, kind="hessian", details=with_sophia)).seconds == 0


@pytest.mark.parametrize(
    ("experiment", "kind", "message"),
    [
        (
            lambda: registry.resolve("bert_baseline", "demo"),
            "train",
            "its model_dim is 768, here",
        ),
        (lambda: paper("crammed_bert"), "train", "its mlp_dim is 1536, here 3072"),
        (lambda: registry.resolve("vit_baseline", "demo"), "train", "it has bert, t5"),
        (lambda: paper("sparse_t5_75"), "train", "it has adamw, lion, sophia"),
        (lambda: paper("bert_baseline", num_layers=17), "train", "no figure for 17 layers"),
        (lambda: paper("t5_baseline"), "forward", "for t5 it has train"),
        (lambda: paper("t5_baseline", num_decoder_layers=6), "train", "its symmetric is True"),
    ],
)
def test_programs_of_another_set_are_refused(ntng, experiment, kind, message):
    with pytest.raises(UserError, match=message):
        ntng.known(identify(experiment(), kind))


def test_other_batches_are_refused(ntng):
    with pytest.raises(UserError, match="a multiple of 128 sequences"):
        ntng.known(identify(paper("bert_baseline"), sequences=200))
    with pytest.raises(UserError, match="are for 144 sequences"):
        ntng.known(identify(paper("t5_baseline"), sequences=288))


def damaged(change):
    stored = json.loads((shipped_folder() / "ntng.json").read_text())
    change(stored)
    return Published.read(stored, pathlib.Path("table.json"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        # The slip as it was published.
        (
            lambda t: t["series"][0]["seconds"].update({"7": 0.01052}),
            r"bert/train/7 layers: 0.01052 s is not above the 0.09188 s of 6",
        ),
        (
            lambda t: t["series"][3]["seconds"].update({"4": -0.373}),
            r"t5/train/4 layers: -0.373 s is not a time",
        ),
        (
            lambda t: t["series"][1]["seconds"].update({"16": float("nan")}),
            r"bert/forward/16 layers: nan s",
        ),
        (lambda t: t["series"][1].update({"seconds": {}}), r"bert/forward: no entry"),
        (
            lambda t: t["series"][0].update({"versions": {}}),
            r"bert/train: the device and its versions",
        ),
        (
            lambda t: t["series"][0].pop("sequences"),
            r"damaged reference table \(KeyError: 'sequences'\)",
        ),
        (lambda t: t["series"][0].update({"seconds": {"one": 1}}), r"damaged reference table"),
        (lambda t: t.update({"series": None}), r"damaged reference table"),
    ],
)
def test_doubtful_entry_is_named(change, message):
    with pytest.raises(UserError, match=message):
        damaged(change)


def test_every_shipped_table_is_sound():
    """And is part of the package that is built."""
    tables = sorted(shipped_folder().glob("*.json"))
    assert "ntng.json" in [path.name for path in tables]
    for path in tables:
        assert read_reference(path).name == path.stem
    root = pathlib.Path(__file__).parents[3]
    assert '"experiments.reference" = ["tables/*.json"]' in (root / "pyproject.toml").read_text()
