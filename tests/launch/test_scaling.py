"""Scaling from plans: the rule from a small slice to a large one, what is kept, the picture."""

import jax
import pytest
from rich.console import Console

from experiments.overrides import apply_overrides
from experiments.registry import resolve
from launch import scaling
from launch.compiled_step import compile_step
from launch.cost import COLLECTIVES


def collectives(devices):
    settings = ("model.num_layers=2", "model.model_dim=64", "model.mlp_dim=128", "mesh.data=-1")
    batch = f"train.batch_size={2 * devices}"
    experiment = apply_overrides(resolve("bert_baseline", "demo"), (*settings, batch))
    step = compile_step(experiment, jax.devices()[:devices], capacity=1e12)
    return [
        {"opcode": one.opcode, "times": one.times, "sent": one.sent, "group": one.group}
        for one in step.kernels
        if one.opcode in COLLECTIVES
    ]


def total(found):
    return sum(one["times"] * one["sent"] for one in found)


def test_a_small_slice_tells_what_a_larger_one_sends():
    def mesh(devices):
        return {"replica": 1, "data": devices, "fsdp": 1, "tensor": 1}

    small, full = collectives(2), collectives(8)
    grown = scaling.grow(small, mesh(2), mesh(8))
    assert {one["group"] for one in grown} == {one["group"] for one in full} == {8}
    assert total(grown) == pytest.approx(total(full), rel=1e-6)
    assert total(full) == pytest.approx(total(small) * (7 / 8) / (1 / 2), rel=1e-6)


def test_only_groups_along_data_grow():
    small, full = {"data": 2}, {"data": 16}
    found = [{"opcode": "all-reduce", "times": 3, "sent": 1.0, "group": 2}]
    (grown,) = scaling.grow(found, small, full)
    assert grown == found[0] | {"group": 16, "sent": pytest.approx(15 / 8)}
    assert scaling.grow(found, small, small) == found
    # Without replicas nothing is left to sum.
    (alone,) = scaling.grow(found, small, {"data": 1})
    assert alone["group"] == 1 and alone["sent"] == 0
    odd = [{"opcode": "all-reduce", "times": 1, "sent": 1.0, "group": 32}]
    with pytest.raises(ValueError, match="over 32 of"):
        scaling.grow(odd, small, full)


def test_shares_of_a_chip_are_the_same_on_the_slice_that_is_compiled():
    for name, experiment in scaling.models().items():
        for chips in (8, 64, 512, 4096):
            small = scaling.chips_compiled(experiment, chips)
            one, other = (
                scaling.at_size(experiment, count, 4096 // chips * count)
                for count in (chips, small)
            )
            assert one.train.microbatches == other.train.microbatches, name
            assert one.mesh.sizes(chips)["fsdp"] == other.mesh.sizes(small)["fsdp"], name
            one.check()


def test_what_is_compiled_is_kept_and_drawn(tmp_path, monkeypatch):
    compiled = []

    def cost(experiment, shape):
        compiled.append((experiment.train.batch_size, shape))
        reduce = {"opcode": "all-reduce", "times": 2, "sent": 1e9, "group": 8}
        return {"fits": True, "kernels_s": 0.1, "collectives": [reduce], "compile_s": 1.0}

    monkeypatch.setattr(scaling, "cost_of_step", cost)
    kept, sizes = tmp_path / "scaling.json", (8, 64, 512)
    rows = scaling.plan_all(["bert"], sizes, kept, Console(quiet=True), whole=False)
    # Weak on all, and strong on 512, are one program; that of eight parts is another.
    assert compiled == [(64, "2x2x2"), (512, "2x2x2")]
    assert scaling.plan_all(["bert"], sizes, kept, Console(quiet=True), whole=False) == rows
    assert len(compiled) == 2
    weak = [row for row in rows if row["kind"] == "weak"]
    assert [row["sent"] for row in weak] == pytest.approx(
        [2e9, 2e9 * (63 / 64) / (7 / 8), 2e9 * (511 / 512) / (7 / 8)]
    )
    assert weak[0]["step_s"] < weak[1]["step_s"] < weak[2]["step_s"]
    scaling.draw(rows, tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
