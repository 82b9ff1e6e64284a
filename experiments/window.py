"""A traced window of steps: the step time from XProf with the synchronised wall time beside it."""

import dataclasses
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Any

import jax

from experiments.xplane import TraceError, find_xplane, step_times
from models.errors import UserError

# The name under which a jitted `train_step` appears in a trace.
MODULE = "jit_train_step"


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Seconds of one step, two ways, over the same window of consecutive steps."""

    # Mean period in the XProf trace; None where it could not be read, with the reason in `note`.
    xprof: float | None
    # Wall time between two synchronised stops over the number of steps.
    wall: float
    # Mean time from the first to the last operation of a step.
    busy: float | None
    relative_spread: float | None
    steps: int
    note: str

    @property
    def best(self) -> float:
        return self.wall if self.xprof is None else self.xprof

    @property
    def disagreement(self) -> float | None:
        """(XProf − wall) / wall."""
        return None if self.xprof is None else self.xprof / self.wall - 1


class Window:
    """Traces a window of steps into a folder."""

    def __init__(self, folder: pathlib.Path, steps: int, module: str = MODULE):
        self._folder = folder
        self._module = module
        self._steps = steps
        self._started = 0.0
        self._running = False

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, *_: object) -> None:
        # A run that ends inside its window must not leave the profiler running.
        if self._running:
            jax.profiler.stop_trace()

    def start(self) -> None:
        """Starts the trace; the device must have nothing left to do."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        options.host_tracer_level = 2
        jax.profiler.start_trace(str(self._folder), profiler_options=options)
        self._running = True
        self._started = time.perf_counter()

    def stop(self) -> StepTime:
        """Ends the window after exactly `steps` finished steps and reads their time.

        Raises UserError where the trace cannot be written, as on a full disk.
        """
        wall = (time.perf_counter() - self._started) / self._steps
        self._running = False
        try:
            jax.profiler.stop_trace()
        except jax.errors.JaxRuntimeError as error:
            reason = str(error).rpartition(";")[2].strip()
            raise UserError(f"{self._folder}: the trace was not written ({reason}).") from None
        try:
            traced = step_times(find_xplane(self._folder), self._module, self._steps)
        except TraceError as error:
            return StepTime(None, wall, None, None, self._steps, f"no XProf step time: {error}")
        return StepTime(
            xprof=traced.period_s,
            wall=wall,
            busy=traced.span_s,
            relative_spread=traced.relative_spread,
            steps=traced.runs,
            note=f"mean period of {traced.runs} runs on {traced.plane}",
        )


def time_steps(
    run_step: Callable[[Any, int], Any],
    state: Any,
    steps: int,
    warmup: int,
    folder: pathlib.Path,
    module: str = MODULE,
) -> tuple[Any, StepTime]:
    """Runs `warmup` + `steps` steps asynchronously and times the latter; returns the state too.

    `module` is the name of the step's program in a trace.
    """
    for index in range(warmup):
        state = run_step(state, index)
    with Window(folder, steps, module) as window:
        jax.block_until_ready(state)
        window.start()
        for index in range(warmup, warmup + steps):
            state = run_step(state, index)
        jax.block_until_ready(state)
        return state, window.stop()
