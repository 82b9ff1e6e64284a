"""The one training loop: exactly the planned steps, with everything else beside the clock."""

import dataclasses
import itertools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from experiments.budget import Plan
from experiments.checkpoint import Checkpoints
from experiments.clock import Clock
from experiments.config import Experiment, TrainConfig
from experiments.data.objectives import tokens_per_batch
from experiments.data.prefetch import Prefetcher, Supplier
from experiments.display import Display
from experiments.distributed import StopRequest
from experiments.evaluate import Judge
from experiments.meter import Meter
from experiments.optim import learning_rate
from experiments.run_folder import RunFolder
from experiments.stages import Stages
from experiments.step import State
from experiments.window import StepTime, Window
from models.mesh import own_rows, place_batch


class Interrupted(Exception):
    """The run was told to stop; everything up to `step` is saved in `folder`."""

    def __init__(self, step: int, folder: pathlib.Path):
        super().__init__(f"stopped after step {step}")
        self.step = step
        self.folder = folder


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


def spread_evenly(count: int, total_steps: int) -> set[int]:
    """Numbers of finished steps at which something happens `count` times, the end included."""
    return {round(total_steps * index / count) for index in range(1, count + 1)} - {0}


def train(
    experiment: Experiment,
    plan: Plan,
    stages: Stages,
    state: State,
    outcome: Outcome,
    batches: Supplier,
    evaluation: Judge,
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
    # A checkpoint of a stage's last step is of that stage still.
    stage = plan.stage_index(max(first - 1, 0))
    program = stages.program(stage)
    # Of every stage: they differ in the model alone.
    rows = own_rows(program.batch_shapes)
    window_first, window_last = choose_window(
        plan, first, cfg, evaluate_at | save_at, measured=outcome.step_time is not None
    )

    def due(done: int) -> bool:
        return done % cfg.log_every_steps == 0 or done == total

    def report_pending() -> None:
        """Reads the steps held, while the device works on the one just given to it."""
        done = meter.fetch()
        if not done or not due(done):
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
            outcome.final = evaluation(program.eval_step, state, program.train_batch_shapes)
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
        Window(folder.profile, window_last - window_first) as window,
        Prefetcher(batches, experiment.seed, first, rows=rows) as feed,
    ):
        clock.switch("train")
        trained_before_s = clock.seconds["train"]
        for step in range(first, total):
            done = step + 1
            progress, next_progress = plan.progress(step), plan.progress(done)
            if plan.stage_index(step) != stage:
                report_pending()
                stage = plan.stage_index(step)
                with clock.on("compile", wait_for=state):
                    growth = stages.growth(stage)
                with clock.on("grow"):
                    program, state = growth.after, jax.block_until_ready(growth.run(state))
            batch = place_batch(feed.next(), program.batch_shapes, rows)
            state, sums = program.step(
                state, batch, step, np.float32(progress), np.float32(next_progress)
            )
            if meter.full or due(step):
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
            stopping = stop.after(done)
            if done in save_at or stopping:
                save(done, wait=stopping or done == total)
            if stopping and done < total:
                raise Interrupted(done, folder.path)
        report_pending()
        clock.switch("start", wait_for=state)
    display.stop()
    return state, outcome


def choose_window(
    plan: Plan, first: int, cfg: TrainConfig, events: set[int], measured: bool = False
) -> tuple[int, int]:
    """Finished steps at which the traced window starts and ends.

    It lies in the stage that costs most, after the warm-up of `first` or of the stage, and holds no
    evaluation and no checkpoint: the first gap with room for it all, else the longest. Both are
    past the end where no two steps fit, or where the time has been `measured` before.
    """
    stage = max(plan.stages, key=lambda stage: stage.steps * stage.seconds_per_step)
    start = max(first, stage.first_step) + cfg.warmup_steps
    end = stage.first_step + stage.steps
    # What happens after a step's end disturbs the period that follows it.
    edges = [start, *sorted(step + 1 for step in events if start <= step < end), end + 1]
    best = (0, 0)
    for low, high in itertools.pairwise(edges):
        steps = min(high - 1 - low, cfg.profile_steps)
        if steps > best[1] - best[0]:
            best = low, low + steps
    if measured or best[1] - best[0] < 2:
        return plan.total_steps + 1, plan.total_steps + 1
    return best


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
