"""The plan of a run by a published table alone: nothing is compiled, nothing measured."""

from experiments.budget import Plan, StageCost, make_plan, parse_budget
from experiments.config import Experiment
from experiments.network import build_network
from experiments.optimizers.sides import optimizer_sides
from experiments.program import NO_METHOD
from experiments.reference import Reference, identify


def plan_by_table(experiment: Experiment, reference: Reference) -> Plan | None:
    """The steps that a budget buys by the reference's own figures.

    What a method charges before its first step (RHO's proxy) is known only when it has been run.

    Returns None where the reference has no figure of a program, raises UserError where a published
    one refuses it.
    """
    method = experiment.method or NO_METHOD
    stages = []
    for spec in method.stages(experiment):
        model, step_s = build_network(spec.experiment), 0.0
        calls = [(timed.kind, timed.calls_per_step, timed.layers) for timed in spec.timed]
        sides = (*method.sides(model, spec.experiment), *optimizer_sides(model, spec.experiment))
        calls += [
            (side.kind, side.calls_per_run / side.every_steps, None)
            for side in sides
            if not side.free
        ]
        for kind, calls_per_step, layers in calls:
            known = reference.known(identify(spec.experiment, kind, layers=layers))
            if known is None:
                return None
            step_s += calls_per_step * known.seconds
        stages.append(StageCost(spec.name, spec.end, step_s))
    return make_plan(parse_budget(experiment.budget), stages)
