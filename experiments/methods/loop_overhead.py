"""What the training loop adds to the steps that it runs."""

import dataclasses
import pathlib
import tempfile
import time
from typing import Any

import jax
import numpy as np

from experiments.budget import Plan, Stage
from experiments.clock import Clock
from experiments.data.batches import Batches
from experiments.display import Display
from experiments.program import Program
from experiments.run_folder import RunFolder
from experiments.timing import Median, fill_batch, median
from experiments.train import Outcome, train
from experiments.window import StepTime
from models.mesh import place_batch

# Passes through the loop, each between two through a bare chain, so that drift cancels.
_PASSES = 7
# A pass is a multiple of so many steps, and takes about so many seconds.
_STEPS, _PASS_S = 10, 1.2


def loop_overhead(program: Program, batches: Batches) -> Median:
    """Seconds that the loop's own account has beyond a bare chain of the same steps."""
    cfg = dataclasses.replace(program.experiment.train, num_evaluations=1, num_checkpoints=1)
    experiment = dataclasses.replace(program.experiment, train=cfg)
    stage: Any = _OneStage(program)
    nothing: Any = _Nothing()
    filled: Any = _Filled(batches, program)
    drawn, share = draw(program, batches), np.float32(0.5)

    def bare(steps: int) -> float:
        state = jax.block_until_ready(program.init_state(0))
        begun = time.perf_counter()
        for step in range(steps):
            state, _ = program.step(state, drawn[step % len(drawn)], step, share, share)
        jax.block_until_ready(state)
        return time.perf_counter() - begun

    bare(_STEPS)
    steps = _STEPS * max(round(_PASS_S / bare(_STEPS)), 1)
    plan = Plan((Stage("train", 0.0, 1.0, 0, steps, 1.0),))

    def loop(folder: RunFolder) -> float:
        clock = Clock(since_process_start=False)
        # As of a run whose traced window is over.
        outcome = Outcome(step_time=StepTime(None, 0.0, None, None, 0, ""))
        train(
            experiment,
            plan,
            stage,
            jax.block_until_ready(program.init_state(0)),
            outcome,
            filled,
            nothing,
            folder,
            nothing,
            clock,
            Display(quiet=True),
        )
        return clock.seconds["train"]

    added = []
    with tempfile.TemporaryDirectory() as workdir:
        folder = RunFolder(pathlib.Path(workdir), experiment)
        folder.open(force=False)
        try:
            loop(folder)  # opens its files
            for _ in range(_PASSES):
                before_s, looped_s, after_s = bare(steps), loop(folder), bare(steps)
                added.append(looped_s - (before_s + after_s) / 2)
        finally:
            folder.close()
    return median([seconds / steps for seconds in added])


def draw(program: Program, batches: Batches) -> list[Any]:
    """Returns batches for a step of the program, on its devices."""
    shapes = program.batch_shapes
    return [place_batch(fill_batch(batches.batch(0, i), shapes), shapes) for i in range(4)]


class _Nothing:
    """Stands in for checkpoints and evaluation, whose time is on other accounts."""

    examples, unigram_nll = 0, 0.0

    def save(self, *_: Any) -> None: ...

    def wait(self) -> None: ...

    def __call__(self, *_: Any) -> dict[str, float]:
        return {}


class _OneStage:
    """A program that is the only stage."""

    def __init__(self, program: Program):
        self._program = program

    def program(self, index: int) -> Program:
        return self._program


class _Filled:
    """Batches with zeros for the arrays that a method adds before its run."""

    def __init__(self, batches: Batches, program: Program):
        self._batches, self._shapes = batches, program.batch_shapes

    def batch(self, seed: int, i: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        return fill_batch(self._batches.batch(seed, i, rows), self._shapes)
