"""Carries out one experiment: data, program, plan, loop, summary."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from experiments import report_text
from experiments.budget import Plan, Stage, make_plan, parse_budget
from experiments.checkpoint import Checkpoints
from experiments.clock import Clock
from experiments.config import Experiment
from experiments.data.batches import Batches
from experiments.data.prepare import prepare
from experiments.data.windows import Prepared
from experiments.device import Device, Reference, find_reference, this_device
from experiments.display import Display
from experiments.evaluate import Evaluation
from experiments.meter import NotFinite
from experiments.program import compile_program, enable_compilation_cache
from experiments.programs import ProgramTime, seconds_per_step
from experiments.run_folder import RunFolder, read_json
from experiments.summary import summarise
from experiments.train import Interrupted, Outcome, train
from experiments.window import StepTime
from models.config import ViTConfig
from models.errors import UserError

# Exit code of a run that a signal has stopped, with everything saved.
EXIT_INTERRUPTED = 75


def run_experiment(experiment: Experiment, workdir: str, reference: str, force: bool) -> int:
    """Runs, or goes on with, one experiment; returns the exit code of the command."""
    clock = Clock()
    enable_compilation_cache()
    folder = RunFolder(pathlib.Path(workdir), experiment)
    with Display() as display:
        known_reference = find_reference(reference)
        folder.open(force)
        try:
            summary = _run(experiment, known_reference, folder, clock, display)
        except Interrupted as interrupted:
            display.stop()
            display.tell(
                f"Stopped after step {interrupted.step}; all of it is saved in {folder.path}. "
                "The same command goes on from there."
            )
            return EXIT_INTERRUPTED
        finally:
            folder.close()
        report_text.print_summary(display.console, summary, folder.path)
    return 0


def prepare_with_display(experiment: Experiment, display: Display) -> Prepared:
    """Prepares the experiment's data where it is not prepared yet, showing progress."""
    shown = ""

    def progress(done: int, total: int | None, unit: str, phase: str) -> None:
        nonlocal shown
        if phase != shown:
            display.start(f"preparing data: {phase}", total)
            shown = phase
        display.update(done, total, f"{done:,} {unit}" if unit else "")

    prepared = prepare(experiment.data, progress=progress)
    display.stop()
    model = experiment.model
    if isinstance(model, ViTConfig) and prepared.vocab_size > model.num_classes:
        raise UserError(
            f"model.num_classes={model.num_classes}: the data has {prepared.vocab_size} classes; "
            "set at least that."
        )
    return prepared


def _run(
    experiment: Experiment,
    reference: Reference,
    folder: RunFolder,
    clock: Clock,
    display: Display,
) -> dict[str, Any]:
    with clock.on("prepare"):
        prepared = prepare_with_display(experiment, display)
    cfg, device = experiment.train, this_device()
    batches = Batches(prepared, experiment.data, "train", cfg.batch_size)
    validation = Batches(prepared, experiment.data, "validation", cfg.batch_size)
    evaluation = Evaluation(prepared, experiment.data, validation, cfg.eval_batches)
    with clock.on("compile"):
        display.start("compiling", None)
        program = compile_program(experiment)
        display.stop()

    config = read_json(folder.path / "config.json")
    if config is None:
        with clock.on("measure"):
            display.start("measuring this device", None)
            seconds = seconds_per_step(experiment, program, batches, device, folder.workdir)
            display.stop()
        config = _write_config(experiment, seconds, reference, device, prepared, folder)
    elif config["data"]["digest"] != prepared.digest:
        raise UserError(
            f"{folder.path}: this run has begun on other data (digest "
            f"{config['data']['digest'][:8]}, now {prepared.digest[:8]}). Give --force to run anew."
        )
    plan = Plan(tuple(Stage(**stage) for stage in config["plan"]["stages"]))

    with Checkpoints(folder.checkpoints, cfg.keep_checkpoints) as checkpoints:
        with clock.on("checkpoint"):
            restored = checkpoints.restore_latest(program.state_shapes, display.tell)
        if restored is None:
            with clock.on("compile"):
                state, outcome = program.init_state(experiment.seed), Outcome()
        else:
            state, meta = restored
            clock.add(meta["seconds"])
            outcome = _outcome_from(meta["outcome"])
            display.tell(f"Going on after step {int(state['step'])} of {plan.total_steps}.")
        folder.drop_metrics_after(int(state["step"]))
        try:
            state, outcome = train(
                experiment,
                plan,
                program,
                state,
                outcome,
                batches,
                evaluation,
                folder,
                checkpoints,
                clock,
                display,
            )
        except NotFinite as error:
            raise _stop_at(error, experiment, batches, folder) from error
    summary = summarise(
        experiment, config, plan, program, state, outcome, evaluation, clock.seconds
    )
    folder.write_summary(summary)
    return summary


def _write_config(
    experiment: Experiment,
    seconds: ProgramTime,
    reference: Reference,
    device: Device,
    prepared: Prepared,
    folder: RunFolder,
) -> dict[str, Any]:
    """Plans a new run and writes down, before its first step, what it will be."""
    step_s = seconds.seconds * reference.ratio
    plan = make_plan(parse_budget(experiment.budget), [("train", 1.0, step_s)])
    return folder.write_config(
        {
            "device": dataclasses.asdict(device),
            "reference": dataclasses.asdict(reference),
            "data": {
                "digest": prepared.digest,
                "folder": str(prepared.folder),
                **prepared.facts["counts"],
            },
            "plan": {
                "stages": [dataclasses.asdict(stage) for stage in plan.stages],
                "from": dataclasses.asdict(seconds),
            },
        }
    )


def _outcome_from(stored: dict[str, Any]) -> Outcome:
    step_time = stored["step_time"]
    return Outcome(**{**stored, "step_time": StepTime(**step_time) if step_time else None})


def _stop_at(
    error: NotFinite, experiment: Experiment, batches: Batches, folder: RunFolder
) -> UserError:
    """Saves what is needed to look into a loss that is not finite."""
    failure = folder.path / "failure"
    failure.mkdir(exist_ok=True)
    batch: dict[str, Any] = batches.batch(experiment.seed, error.step - 1)
    np.savez(failure / "batch.npz", **batch)
    details = {"step": error.step, "what": str(error), "seed": experiment.seed}
    (failure / "failure.json").write_text(json.dumps(details, indent=2) + "\n")
    return UserError(
        f"{error}: the run is stopped. The batch of that step is in {failure}, the last good "
        f"checkpoint in {folder.checkpoints}; a lower optimizer.peak_learning_rate often helps."
    )
