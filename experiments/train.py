"""The one training loop: exactly the planned steps, with everything else beside the clock."""

import dataclasses
import signal
import types
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.budget import Plan
from experiments.checkpoint import Checkpoints
from experiments.clock import Clock
from experiments.config import Experiment
from experiments.data.batches import Batches
from experiments.data.objectives import tokens_per_batch
from experiments.data.prefetch import Prefetcher
from experiments.display import Display
from experiments.evaluate import Evaluation
from experiments.meter import Meter
from experiments.optim import learning_rate
from experiments.program import Program
from experiments.run_folder import RunFolder
from experiments.step import State
from experiments.window import StepTime, Window


class Interrupted(Exception):
    """The run was told to stop; everything up to `step` is saved."""

    def __init__(self, step: int):
        super().__init__(f"stopped after step {step}")
        self.step = step


@dataclasses.dataclass
class Outcome:
    """What the loop knows when it is done, or when it took up the run of a checkpoint."""

    # Means of the last evaluation.
    final: dict[str, float] = dataclasses.field(default_factory=dict)
    # From the traced window; None until it has been reached.
    step_time: StepTime | None = None
    # Seconds for which the loop waited for its input.
    input_wait_s: float = 0.0
    # Wall seconds from the start of the process to the first step.
    to_first_step_s: float = 0.0


class StopRequest:
    """Turns SIGTERM and Ctrl-C into a flag that the loop reads between steps."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def _note(self, signum: int, frame: types.FrameType | None) -> None:
        self.requested = True
        # A second Ctrl-C ends the process at once.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def spread_evenly(count: int, total_steps: int) -> set[int]:
    """Numbers of finished steps at which something happens `count` times, the end included."""
    return {round(total_steps * index / count) for index in range(1, count + 1)} - {0}


def train(
    experiment: Experiment,
    plan: Plan,
    program: Program,
    state: State,
    outcome: Outcome,
    batches: Batches,
    evaluation: Evaluation,
    folder: RunFolder,
    checkpoints: Checkpoints,
    clock: Clock,
    display: Display,
) -> tuple[State, Outcome]:
    """Runs the steps that are left of the plan; `state["step"]` of them are already done.

    `outcome` is what the steps before have left, and is brought up to date.

    Raises:
      Interrupted: on SIGTERM or Ctrl-C, with everything saved.
      NotFinite: a loss or gradient norm is NaN or infinite.
      UserError: the disk is full.
    """
    cfg, total, first = experiment.train, plan.total_steps, int(state["step"])
    evaluate_at = spread_evenly(cfg.num_evaluations, total)
    save_at = spread_evenly(cfg.num_checkpoints, total)
    waited_before_s = outcome.input_wait_s
    meter = Meter()
    window_first = first + cfg.warmup_steps if outcome.step_time is None else total + 1
    window_last = window_first + cfg.profile_steps

    def report_pending() -> None:
        """Reads the step before, while the device works on the one just given to it."""
        done = meter.fetch()
        if not done or (done % cfg.log_every_steps and done != total):
            return
        means = meter.means()
        means["learning_rate"] = float(
            learning_rate(experiment.optimizer, jnp.float32(plan.progress(done - 1)))
        )
        step_s = (clock.seconds["train"] - trained_before_s) / (done - first)
        means["tokens_per_s"] = tokens_per_batch(experiment.data, cfg.batch_size) / step_s
        folder.log("train", done, spent(done) | means)
        line = _one_line(done, total, means, outcome.final, step_s)
        display.update(done, total, line)

    def evaluate(done: int) -> None:
        report_pending()
        with clock.on("evaluate", wait_for=state):
            outcome.final = evaluation(program.eval_step, state)
            folder.log("validation", done, spent(done) | outcome.final)

    def save(done: int, wait: bool = False) -> None:
        # A loss that is not finite stops the run here, before it can spoil a checkpoint.
        report_pending()
        with clock.on("checkpoint", wait_for=state):
            outcome.input_wait_s = waited_before_s + feed.wait_s
            meta = {"seconds": clock.seconds, "outcome": dataclasses.asdict(outcome)}
            checkpoints.save(done, state, spent(done) | meta)
            if wait:
                checkpoints.wait()

    def spent(done: int) -> dict[str, float]:
        return {"progress": plan.progress(done), "rst_s": plan.rst_s(done)}

    if first == 0:
        outcome.to_first_step_s = sum(clock.seconds.values())
    display.start(experiment.name, total)
    with (
        StopRequest() as stop,
        Window(folder.profile, cfg.profile_steps) as window,
        Prefetcher(batches, experiment.seed, first) as feed,
    ):
        clock.switch("train")
        trained_before_s = clock.seconds["train"]
        for step in range(first, total):
            done = step + 1
            progress, next_progress = plan.progress(step), plan.progress(done)
            batch = feed.next()
            state, sums = program.train_step(
                state, batch, np.float32(progress), np.float32(next_progress)
            )
            report_pending()
            meter.hold(done, sums)
            if done == window_first:
                with clock.on("profile", wait_for=state):
                    window.start()
            if done == window_last:
                with clock.on("profile", wait_for=state):
                    outcome.step_time = window.stop()
            if done in evaluate_at:
                evaluate(done)
            if done in save_at or stop.requested:
                save(done, wait=stop.requested or done == total)
            if stop.requested and done < total:
                raise Interrupted(done)
        report_pending()
        clock.switch("start", wait_for=state)
    display.stop()
    return state, outcome


def _one_line(
    done: int, total: int, means: dict[str, float], final: dict[str, float], step_s: float
) -> str:
    shown = f"step {done}/{total}  loss {means['loss']:.3f}"
    if "sparsity" in means:
        shown += f"  sparsity {100 * means['sparsity']:.1f} %"
    if "nll" in final:
        shown += f"  validation {final['nll']:.3f}"
    left_s = (total - done) * step_s
    return f"{shown}  {means['tokens_per_s']:,.0f} tokens/s  {left_s:.0f} s left"
