"""The stages of a run: each one's compiled program, and the way from one to the next."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from experiments.budget import Plan
from experiments.config import Experiment
from experiments.program import NO_METHOD, Program, compile_program, named
from experiments.step import State

# The kind of program that turns the state of one stage into that of the next.
GROW = "grow"


class Growth(NamedTuple):
    """The compiled program that leads from one stage to the next."""

    before: Program
    after: Program
    # State → state; a `jax.stages.Compiled`.
    run: Callable[[State], State]


class Stages:
    """What runs in each stage; a program is compiled when it is first asked for."""

    def __init__(self, experiment: Experiment):
        self._method = experiment.method or NO_METHOD
        self.specs = self._method.stages(experiment)
        self._programs: dict[Experiment, Program] = {}
        self._growths: dict[int, Growth] = {}
        # Wall seconds that compiling has taken.
        self.compile_s = 0.0

    def program(self, index: int) -> Program:
        """The program of a stage; stages of equal experiments share one."""
        experiment = self.specs[index].experiment
        if experiment not in self._programs:
            begun = time.perf_counter()
            self._programs[experiment] = compile_program(experiment)
            self.compile_s += time.perf_counter() - begun
        return self._programs[experiment]

    @property
    def last(self) -> Program:
        """The program of the last stage, which has the whole model."""
        return self.program(len(self.specs) - 1)

    def growth(self, index: int) -> Growth:
        """The program that turns the last state of the stage before into the first of `index`."""
        before, after = self.program(index - 1), self.program(index)
        if index not in self._growths:
            begun = time.perf_counter()

            def enter(state: State) -> State:
                return self._method.enter_stage(
                    before.experiment, after.experiment, state, after.optimizer.init
                )

            shardings = jax.tree.map(lambda leaf: leaf.sharding, after.state_shapes)
            jitted = jax.jit(named(enter, GROW), out_shardings=shardings)
            run = jitted.lower(before.state_shapes).compile()
            self._growths[index] = Growth(before, after, run)
            self.compile_s += time.perf_counter() - begun
        return self._growths[index]

    def shapes_after(self, plan: Plan, step: int) -> Any:
        """Shapes of the state after `step` finished steps, before a next stage is entered."""
        return self.program(plan.stage_index(max(step - 1, 0))).state_shapes
