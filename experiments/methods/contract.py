"""A contract that every method keeps; point it at yours:

    python -m experiments.methods.contract --import=my_module --exp=my_experiment

It trains a small form of the experiment for a few steps, on the data that every machine has.
"""

import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from experiments.config import Experiment
from experiments.launch import RUN_FLAGS, experiment_from_flags, run_main
from models.errors import UserError


def small(experiment: Experiment) -> Experiment:
    """Returns the experiment with little data and few steps; its model and method stay."""
    train = dataclasses.replace(
        experiment.train,
        batch_size=4 * experiment.train.microbatches,
        log_every_steps=1,
        eval_batches=1,
        num_evaluations=1,
        num_checkpoints=1,
        profile_steps=2,
        warmup_steps=1,
    )
    return dataclasses.replace(experiment, train=train, budget="24steps")


def check_contract(experiment: Experiment, workdir: pathlib.Path | None = None) -> list[str]:
    """Runs the checks and returns what each has found; raises AssertionError where one fails."""
    import jax

    from experiments.data.batches import Batches
    from experiments.data.prepare import prepare
    from experiments.program import examples_per_step
    from experiments.stages import Stages

    experiment.check()
    experiment = small(experiment)
    said = []
    stages = Stages(experiment)
    ends = [spec.end for spec in stages.specs]
    assert ends == sorted(set(ends)) and ends[-1] == 1.0, f"stages end at {ends}, not rising to 1"
    for spec in stages.specs:
        calls = sum(timed.calls_per_step for timed in spec.timed)
        assert abs(calls - 1) < 1e-6, f"stage {spec.name}: training calls add up to {calls}, not 1"
    said.append(f"{len(ends)} stages, ends {ends}, training calls add up")

    wanted = jax.tree.structure(stages.last.state_shapes)
    prepared = prepare(experiment.data)
    batches = Batches(prepared, experiment.data, "train", examples_per_step(experiment))

    def run(seed: int) -> Any:
        from experiments.timing import fill_batch

        state = stages.program(0).init_state(seed)
        steps_each, step = 2, 0
        for index in range(len(stages.specs)):
            program = stages.program(index)
            if index:
                state = stages.growth(index).run(state)
            for _ in range(steps_each):
                batch = fill_batch(batches.batch(seed, step), program.batch_shapes)
                share = step / (steps_each * len(stages.specs))
                state, sums = program.step(
                    state, batch, step, _float32(share), _float32(share + 0.01)
                )
                step += 1
                for name, (total, count) in sums.items():
                    assert bool(jax.numpy.isfinite(total / count)), f"{name} is not finite"
        assert int(state["step"]) == step, "state['step'] does not count the updates"
        return state

    first, again = run(0), run(0)
    assert str(jax.tree.structure(first)) == str(wanted), (
        "the last state differs from the last program's"
    )
    same = jax.tree.map(
        lambda a, b: bool(jax.numpy.array_equal(a, b)), _plain(first), _plain(again)
    )
    assert all(jax.tree.leaves(same)), "equal runs ended differently: a draw is not from the key"
    said.append("losses are finite, equal runs end bit for bit alike")
    kinds = [side.kind for side in stages.last.sides]
    assert len(kinds) == len(set(kinds)), f"programs of one kind cannot be told apart: {kinds}"
    said.append(f"programs beside the step, each charged on its own: {', '.join(kinds) or 'none'}")
    if workdir is not None:
        said.append(_check_charges(experiment, workdir))
    return said


def _check_charges(experiment: Experiment, workdir: pathlib.Path) -> str:
    """Makes a whole run and adds up what its plan charges."""
    import json

    from experiments.run import run_experiment
    from experiments.run_folder import RunFolder
    from experiments.stages import GROW

    assert run_experiment(experiment, str(workdir), "here", True) == 0
    folder = RunFolder(workdir, experiment).path
    plan = json.loads((folder / "config.json").read_text())["plan"]
    for index, stage in enumerate(plan["stages"]):
        assert (GROW in stage["programs"]) == (index > 0), (
            f"stage {stage['name']}: what leads from stage to stage must be charged"
        )
        charged = sum(
            one["calls_per_step"] * one["seconds"]
            for one in stage["programs"].values()
            if not one.get("free")
        )
        assert abs(charged / stage["seconds_per_step"] - 1) < 1e-6, (
            f"stage {stage['name']}: charged {stage['seconds_per_step']}, programs take {charged}"
        )
    return "a whole run is charged for every program that is not declared free"


def _plain(state: Any) -> Any:
    import jax

    return state | {"key": jax.random.key_data(state["key"])}


def _float32(value: float) -> Any:
    import numpy as np

    return np.float32(value)


def main(argv: Sequence[str], tell: Callable[[str], None] = print) -> int:
    experiment = experiment_from_flags()
    with tempfile.TemporaryDirectory() as folder:
        try:
            for line in check_contract(experiment, pathlib.Path(folder)):
                tell(f"kept: {line}")
        except AssertionError as error:
            raise UserError(f"{experiment.name}: broken: {error}") from None
    return 0


if __name__ == "__main__":
    run_main(main, RUN_FLAGS)
