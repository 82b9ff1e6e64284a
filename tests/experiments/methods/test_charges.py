"""What every method is charged for a step, by hand; dropping a program from a charge fails here."""

import dataclasses

import pytest

from experiments import registry
from experiments.budget import Budget
from experiments.charge import charged
from experiments.methods.api import Before
from experiments.ntng import CHALLENGERS
from experiments.planning import plan_run, step_seconds
from experiments.program_time import ProgramTime
from experiments.reference import Cost, find_reference, identify
from experiments.stages import Growth, Stages
from models.errors import UserError

# Seconds here of one call, by kind of program and layers of the model.
TRAIN = {1: 0.4, 2: 0.7, 4: 1.0}
OTHERS = {"train_last": 0.8, "forward": 0.3, "hessian": 2.0}
# Of growing to so many layers.
GROWTH = {2: 5.0, 4: 9.0}


class Compiled:
    """A program whose cost nobody needs."""

    def cost_analysis(self):
        return {}

    def as_text(self):
        return ""


class Uncompiled(Stages):
    """Stages with the programs' names and shapes, none of them compiled."""

    def program(self, index):
        import types

        import jax
        import numpy as np

        from experiments.optimizers.sides import optimizer_sides
        from experiments.program import NO_METHOD, CompiledSide

        experiment = self.specs[index].experiment
        method = experiment.method or NO_METHOD
        sides = (*method.sides(None, experiment), *optimizer_sides(None, experiment))
        shapes = {"x": jax.ShapeDtypeStruct((32, 1), np.int32)}
        return types.SimpleNamespace(
            experiment=experiment,
            train_step=Compiled(),
            sides=[
                CompiledSide(s.kind, s.every_steps, s.calls_per_run, s.free, Compiled())
                for s in sides
            ],
            batch_shapes=shapes,
            train_batch_shapes=shapes,
        )

    def growth(self, index):
        return Growth(self.program(index - 1), self.program(index), Compiled())


class Known:
    """Times as given above."""

    def seconds(self, program, kind, progress=0.0):
        seconds = TRAIN[program.experiment.model.num_layers] if kind == "train" else OTHERS[kind]
        return ProgramTime(seconds, 0.0, "given")

    def growth(self, growth):
        return ProgramTime(GROWTH[growth.after.experiment.model.num_layers], 0.0, "given")

    def base(self):
        raise AssertionError("this device needs no anchor")


def plan(name, before=None, **changes):
    experiment = registry.resolve(f"bert_{name}", "demo")
    if changes:
        method = dataclasses.replace(experiment.method, **changes)
        experiment = dataclasses.replace(experiment, method=method)
    experiment = dataclasses.replace(experiment, budget="1000s")
    return plan_run(
        experiment, Uncompiled(experiment), Known(), find_reference("here"), before or Before()
    ).plan


EXPECTED = {
    "baseline": [1.0],
    "stacking": [0.4, 0.7, 1.0],
    # (1 − e^−100) / 100 of the steps like the first, the rest like the last.
    "layer_dropping": [0.01 * 1.0 + 0.99 * 0.8],
    "selective_backprop": [1.0 + 0.3],
    "rho": [1.0 + 0.3],
    # Declared free.
    "rho_free": [1.0],
    "lion": [1.0],
    "sophia_g": [1.0 + 2.0 / 10],
    "sophia_h": [1.0 + 2.0 / 10],
    "muon": [1.0],
    "schedule_free": [1.0],
}


def test_every_method_is_here():
    assert set(EXPECTED) == {"baseline", *CHALLENGERS}


@pytest.mark.parametrize("name", EXPECTED)
def test_seconds_per_step(name):
    for stage, expected in zip(plan(name).stages, EXPECTED[name], strict=True):
        programs = {kind: one for kind, one in stage.programs.items() if kind != "grow"}
        assert step_seconds(programs) == pytest.approx(expected)
        assert step_seconds(stage.programs) == pytest.approx(stage.seconds_per_step)


def test_a_budget_buys_as_many_steps_as_its_programs_cost():
    assert plan("baseline").total_steps == 1000
    assert plan("selective_backprop").total_steps == int(1000 / 1.3)
    assert plan("selective_backprop", free_selection=True).total_steps == 1000
    # 125 s at 0.4, 175 s at 0.7 and 700 s at 1.0, what is left of one going to the next; growing
    # takes 5 s of the second and 9 s of the third.
    assert [stage.steps for stage in plan("stacking").stages] == [313, 243, 690]


def test_growing_is_charged_once_to_the_steps_after_it():
    found = plan("stacking")
    first, second, third = found.stages
    assert "grow" not in first.programs and first.seconds_per_step == 0.4
    for stage, seconds in ((second, 5.0), (third, 9.0)):
        assert stage.programs["grow"]["seconds"] == seconds
        assert stage.programs["grow"]["calls_per_step"] * stage.steps == pytest.approx(1)
    spent = 313 * 0.4 + 5.0 + 243 * 0.7 + 9.0 + 690 * 1.0
    assert found.rst_s(found.total_steps) == pytest.approx(spent)
    assert 999 < spent <= 1000
    summary = charged(found, 0.0, 1.0)
    assert summary["rst_planned_s"] == pytest.approx(spent)
    assert summary["rst_interval_s"] == pytest.approx([spent, spent])
    assert "4 layers/grow: measured on this device" in summary["rst_how"]


def test_published_seconds_do_not_count_growing():
    growth = identify(registry.resolve("bert_stacking", "paper"), "grow")
    found = find_reference("ntng").convert(growth, ProgramTime(9.0, 0.0, "given"), Cost(0, 0))
    assert found.seconds == 0 and "does not move the counter" in found.how


def test_a_proxy_is_charged_or_declared_free():
    before = Before(charged_s=300.0)
    found = plan("rho", before, proxy_cost="charged")
    # Its training comes off the budget, and it has scored every candidate as well.
    assert found.stages[0].seconds_per_step == pytest.approx(1.0 + 2 * 0.3)
    assert found.total_steps == int(700 / 1.6)
    assert found.rst_s(found.total_steps) == pytest.approx(300 + 1.6 * found.total_steps)
    assert plan("rho").stages[0].programs["forward"]["calls_per_step"] == 1.0


def test_a_proxy_that_costs_the_whole_budget_is_explained():
    with pytest.raises(UserError, match="1e\\+03 s of it are charged before the first step"):
        plan("rho", Before(charged_s=1000.0), proxy_cost="charged")


def test_free_programs_stand_in_the_plan():
    forward = plan("rho_free").stages[0].programs["forward"]
    assert forward["free"] is True and forward["seconds"] == pytest.approx(0.3)


def test_budget_in_steps_is_left_alone():
    from experiments.planning import _left

    assert _left(Budget(10, "steps"), Before(charged_s=5.0)) == Budget(10, "steps")
