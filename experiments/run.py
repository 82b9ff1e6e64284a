"""Carries out one experiment: data, program, plan, loop, summary."""

import dataclasses
import json
import pathlib
from functools import partial
from typing import Any

import numpy as np

from experiments import report_text
from experiments.checkpoint import Checkpoints
from experiments.clock import Clock
from experiments.config import Experiment, to_json
from experiments.data.batches import Batches
from experiments.data.prefetch import Supplier
from experiments.data.prepare import prepare
from experiments.data.windows import Prepared
from experiments.device import this_device
from experiments.display import Display
from experiments.distributed import check_agreement, is_first, stopping_together
from experiments.downstream.evaluation import TaskEvaluation
from experiments.evaluate import Evaluation, Judge
from experiments.meter import NotFinite
from experiments.methods.api import Before
from experiments.methods.supply import Supply
from experiments.planning import plan_from, plan_run
from experiments.program import NO_METHOD, enable_compilation_cache, examples_per_step
from experiments.program_time import ProgramTimes
from experiments.reference import Reference, find_reference
from experiments.run_folder import RunFolder
from experiments.stages import Stages
from experiments.starting_point import StartingPoint, find_starting_point
from experiments.summary import summarise, summarise_diverged
from experiments.train import Interrupted, Outcome, train
from experiments.window import StepTime
from models.config import ViTConfig
from models.errors import UserError

# Exit code of a run that a signal has stopped, with everything saved.
EXIT_INTERRUPTED = 75


def run_experiment(
    experiment: Experiment,
    workdir: str,
    reference: str,
    force: bool,
    account: str = "rst",
    clock: Clock | None = None,
    show_summary: bool = True,
) -> int:
    """Runs, or goes on with, one experiment; returns the exit code of the command."""
    clock = clock or Clock()
    enable_compilation_cache()
    known_reference = find_reference(reference, account=account)
    with stopping_together(), Display(quiet=not is_first()) as display:
        for warning in known_reference.warnings:
            display.tell(warning)
        try:
            carry_out(
                experiment,
                pathlib.Path(workdir),
                known_reference,
                display,
                clock,
                force,
                show_summary,
            )
        except Interrupted as interrupted:
            display.stop()
            display.tell(
                f"Stopped after step {interrupted.step}; all of it is saved in "
                f"{interrupted.folder}. The same command goes on from there."
            )
            return EXIT_INTERRUPTED
    return 0


def carry_out(
    experiment: Experiment,
    workdir: pathlib.Path,
    reference: Reference,
    display: Display,
    clock: Clock,
    force: bool = False,
    show_summary: bool = True,
) -> None:
    """Runs, or goes on with, one experiment, and shows its summary.

    Raises Interrupted where a signal stopped it, with everything saved.
    """
    check_agreement({"experiment": to_json(experiment), "workdir": str(workdir.absolute())})
    folder = RunFolder(workdir, experiment)
    folder.open(force)
    try:
        summary = _run(experiment, reference, folder, clock, display)
    finally:
        folder.close()
    if show_summary:
        report_text.print_summary(display.console, summary, folder.path)


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
        check_agreement({"data": prepared.digest})
        supply = Supply(prepared, folder.workdir, reference, display)
        before = (experiment.method or NO_METHOD).before_run(experiment, supply)
    cfg = experiment.train
    stages = Stages(experiment)
    given: Supplier = Batches(prepared, experiment.data, "train", examples_per_step(experiment))
    validation = Batches(prepared, experiment.data, "validation", cfg.batch_size)
    evaluation: Judge
    if experiment.data.task is None:
        evaluation = Evaluation(prepared, experiment.data, validation, cfg.eval_batches)
    else:
        evaluation = TaskEvaluation(prepared, experiment.data, cfg.batch_size)

    config, start = folder.read_config(), None
    if config is None:
        with clock.on("prepare"):
            start = find_starting_point(experiment, folder.workdir, None)
        with clock.on("measure"):
            display.start("compiling, and measuring this device", None)
            config = _write_config(
                experiment, stages, given, reference, before, prepared, folder, start
            )
            display.stop()
        clock.move("measure", "compile", stages.compile_s)
    elif config["data"]["digest"] != prepared.digest:
        raise UserError(
            f"{folder.path}: this run has begun on other data (digest "
            f"{config['data']['digest'][:8]}, now {prepared.digest[:8]}). Give --force to run anew."
        )
    else:
        reference.check_same(config["reference"], folder.path)
    plan = plan_from(config["plan"])
    if before.wrap:
        with clock.on("prepare"):
            given = before.wrap(given, plan.total_steps)

    with Checkpoints(folder.checkpoints, cfg.keep_checkpoints) as checkpoints:
        with clock.on("compile"):
            display.start("compiling", None)
            restored = checkpoints.restore_latest(
                lambda step: stages.shapes_after(plan, step), display.tell
            )
            display.stop()
        if restored is None:
            with clock.on("compile"):
                start = start or find_starting_point(experiment, folder.workdir, config["init"])
                first = stages.program(0)
                begin = partial(start.state, first) if start else first.init_state
                state, outcome = begin(experiment.seed), Outcome()
                start = None
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
                stages,
                state,
                outcome,
                given,
                evaluation,
                folder,
                checkpoints,
                clock,
                display,
            )
        except NotFinite as error:
            facts = summarise_diverged(experiment, config, plan, error.step, evaluation)
            folder.write_summary(facts)
            _write_report(folder)
            raise _stop_at(error, experiment, given, folder) from error
    summary = summarise(
        experiment, config, plan, stages.last, state, outcome, evaluation, clock.seconds
    )
    folder.write_summary(summary)
    _write_report(folder)
    return summary


def _write_report(folder: RunFolder) -> None:
    """Writes report.html beside the summary."""
    if is_first():
        # Imported here: plotting takes longer to import than a small run to start.
        from experiments.report.run_page import write_run

        write_run(folder.path)


def _write_config(
    experiment: Experiment,
    stages: Stages,
    batches: Supplier,
    reference: Reference,
    before: Before,
    prepared: Prepared,
    folder: RunFolder,
    start: StartingPoint | None,
) -> dict[str, Any]:
    """Plans a new run and writes down, before its first step, what it will be."""
    if start is not None:
        start.check_fits(stages.program(0))
    device = this_device()
    times = ProgramTimes(experiment, batches, device, folder.workdir)
    planned = plan_run(experiment, stages, times, reference, before)
    here, charged = planned.here, planned.charged
    return folder.write_config(
        {
            "device": dataclasses.asdict(device),
            "reference": reference.facts()
            | {"ratio": charged.seconds / here.seconds, "converted": dataclasses.asdict(charged)},
            "data": {
                "digest": prepared.digest,
                "folder": str(prepared.folder),
                **prepared.facts["counts"],
            },
            "plan": planned.facts(),
            "before": before.facts,
            "init": start and start.facts,
            "account": reference.account,
        }
    )


def _outcome_from(stored: dict[str, Any]) -> Outcome:
    step_time = stored["step_time"]
    return Outcome(**{**stored, "step_time": StepTime(**step_time) if step_time else None})


def _stop_at(
    error: NotFinite, experiment: Experiment, batches: Supplier, folder: RunFolder
) -> UserError:
    """Saves what is needed to look into a loss that is not finite."""
    if not is_first():
        return UserError(str(error))
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
