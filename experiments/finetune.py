"""`python -m experiments.finetune --run=FOLDER --task=glue/cola`: scores of a trained network."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import run_main
from models.allocator import keep_freed_memory
from models.errors import UserError

_RUN = flags.DEFINE_string("run", None, "Folder of a finished run, or of Hugging Face weights.")
_TASK = flags.DEFINE_string("task", None, "Tasks or suites: glue, glue/cola,superglue/cb, digits.")
_SEEDS = flags.DEFINE_integer("seeds", 3, "How many seeds; they start from --seed.")
_PROTOCOL = flags.DEFINE_string(
    "protocol", None, "ntng, cramming, ultrafastbert or demo; by default by the scale of the run."
)
_SCRATCH = flags.DEFINE_bool("scratch", False, "Starts from random weights, for comparison.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be fine-tuned, and how."""

    # Folder of a finished run, or of Hugging Face weights.
    run: str
    # Tasks or suites, with commas between.
    task: str
    # Seeds, from the first one on.
    seeds: int = 3
    first_seed: int = 0
    # Name of the protocol; None: by the scale of the run.
    protocol: str | None = None
    # Whether to start from random weights.
    scratch: bool = False
    # path=value settings of every fine-tuning run.
    assignments: Sequence[str] = ()
    # Device in whose seconds time counts.
    reference: str = "here"
    # Whether finished fine-tuning runs are made anew.
    force: bool = False
    # Whether only the plan is shown.
    dry_run: bool = False


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --run=FOLDER --task=NAME.")
    if _RUN.value is None or _TASK.value is None:
        raise UserError("--run or --task is missing; write --run=FOLDER --task=NAME.")
    if _SEEDS.value < 1:
        raise UserError(f"--seeds={_SEEDS.value}: must be at least 1.")
    values = flags.FLAGS
    # Before jax, which is needed only from here on, starts its threads.
    keep_freed_memory()
    return finetune(
        Request(
            run=_RUN.value,
            task=_TASK.value,
            seeds=_SEEDS.value,
            first_seed=values.seed or 0,
            protocol=_PROTOCOL.value,
            scratch=_SCRATCH.value,
            assignments=values.set,
            reference=values.reference,
            force=values.force,
            dry_run=values.dry_run,
        )
    )


def finetune(asked: Request) -> int:
    """Makes, or takes up, the fine-tuning runs that are asked for, and shows their scores.

    Finished ones are read, not made again. Returns the exit code of the command.
    """
    from rich.console import Console

    from experiments.config import config_hash
    from experiments.downstream import plan, scores
    from experiments.downstream.protocols import find_protocol
    from experiments.downstream.registry import names_of
    from experiments.downstream.source import check_no_leak, open_source

    names = names_of(asked.task)
    source = open_source(asked.run)
    check_no_leak(source, names)
    protocol_name = asked.protocol or ("demo" if source.scale == "demo" else "ntng")
    protocol = find_protocol(protocol_name)
    # Errors of any task come before the first one is trained.
    drafts = {name: plan.draft(source, name, protocol, scratch=asked.scratch) for name in names}
    # Scores of random weights stand apart, since they say nothing of the run.
    place = source.folder / "downstream"
    place = place / "scratch" if asked.scratch else place
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = 120
    by_task: dict[str, list[dict[str, Any]]] = {}
    for name, draft in drafts.items():
        experiment, prepared = plan.complete(draft, asked.assignments)
        epochs = experiment.train.num_evaluations
        console.print(f"{name}: {experiment.budget}, {epochs} epochs, protocol {protocol_name}")
        if asked.dry_run:
            continue
        # What it depends on beside its seed and the weights that it starts from.
        settings = config_hash(dataclasses.replace(experiment, init=None, pruning=None))
        settings += f"-{prepared.digest[:8]}"
        found: list[dict[str, Any]] = []
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            run = dataclasses.replace(experiment, seed=seed)
            run.check()
            workdir = source.folder / "downstream" / "runs"
            code, folder = _run(run, workdir, asked, prepared.digest)
            if code:
                return code
            facts = {
                "examples": next(iter(prepared.facts["counts"]["validation"].values())),
                "protocol": protocol_name,
                "from": "scratch" if asked.scratch else source.name,
                "settings": settings,
                "run": str(folder.relative_to(source.folder)),
            }
            baselines = prepared.facts.get("baselines", {})
            found += scores.scores_of_run(folder, name, seed, baselines, facts)
        by_task[name] = found
        console.print(f"{name}: {scores.write_scores(place, name, found)}")
    if by_task:
        scratch = None
        if not asked.scratch:
            scratch = scores.read_scratch(place / "scratch", by_task)
        scores.show(console, by_task, protocol, scratch)
    if by_task and source.data is not None and not asked.scratch:
        from experiments.report.run_page import write_run

        # Its page now shows the scores beside the loss.
        write_run(source.folder)
    return 0


def _run(experiment: Any, workdir: Any, asked: Request, digest: str) -> tuple[int, Any]:
    """Makes one fine-tuning run unless it is finished; returns its exit code and its folder.

    Raises UserError where it is finished, but on other data than that of the digest.
    """
    import jax

    from experiments.clock import Clock
    from experiments.run import run_experiment
    from experiments.run_folder import RunFolder, read_json

    folder = RunFolder(workdir, experiment).path
    finished = read_json(folder / "summary.json")
    if finished is not None and finished["status"] == "finished" and not asked.force:
        if finished["data"] != digest:
            raise UserError(
                f"{folder}: this run was made on other data (digest {finished['data'][:8]}, now "
                f"{digest[:8]}). Give --force to make it anew."
            )
        return 0, folder
    code = run_experiment(
        experiment,
        str(workdir),
        asked.reference,
        asked.force,
        clock=Clock(since_process_start=False),
        show_summary=False,
    )
    # Programs of runs that are done would only pile up.
    jax.clear_caches()
    return code, folder


if __name__ == "__main__":
    run_main(main, ("seed", "reference", "set", "force", "dry_run"))
