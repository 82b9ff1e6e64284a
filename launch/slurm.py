"""`python -m launch.slurm --exp=NAME --nodes=2 --time=12:00:00`: the run as a Slurm job.

Writes a batch script that can be read and kept, and submits it. A study becomes an array with one
task for each point. A job that is preempted, or near its time limit, saves and is queued again.
"""

import pathlib
import re
from collections.abc import Sequence

from absl import flags

from experiments.launch import EXIT_INTERRUPTED, JOB_FLAGS, run_main
from launch.cloud import CONCURRENT, NODES
from launch.job import is_dry_run, numbers, plain, run_from_flags, submit
from models.errors import UserError

_TASKS = flags.DEFINE_integer(
    "tasks_per_node", 1, "Processes on each node; on GPU nodes one for each GPU.", lower_bound=1
)
_GPUS = flags.DEFINE_integer("gpus_per_node", 0, "GPUs of each node.", lower_bound=0)
_CPUS = flags.DEFINE_integer("cpus_per_task", 0, "Cores of each process; 0: as Slurm does.")
_TIME = flags.DEFINE_string("time", "24:00:00", "Time limit, as in 12:00:00 or 2-00:00:00.")
_PARTITION = flags.DEFINE_string("partition", None, "Partition; by default Slurm's.")
_SLURM_ACCOUNT = flags.DEFINE_string("slurm_account", None, "Account that pays; by default yours.")
_PYTHON = flags.DEFINE_string("python", ".venv/bin/python", "Interpreter, on every node.")
_SAVE_S = flags.DEFINE_integer("save_s", 120, "Seconds before the time limit at which to save.")
_SCRIPT = flags.DEFINE_string("script", None, "Where to write the script; by default in --workdir.")


def main(argv: Sequence[str]) -> int:
    arguments, points, _ = run_from_flags(argv, read=(NODES, CONCURRENT))
    workdir = pathlib.Path(plain("--workdir", flags.FLAGS.workdir))
    name = plain("--exp", flags.FLAGS.exp)
    script = pathlib.Path(plain("--script", _SCRIPT.value or f"{workdir}/slurm/{name}.sbatch"))
    text = batch_script(name, arguments, points, workdir)
    if not is_dry_run():
        # Slurm does not make the folder of a job's log.
        (workdir / "slurm").mkdir(parents=True, exist_ok=True)
    hint = "Run this where jobs are submitted, or --dry_run to see the script."
    return submit(script, text, ["sbatch", str(script)], hint)


def time_limit_s(text: str) -> int:
    """Seconds of a limit as Slurm reads it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if match is None:
        raise UserError(f"--time {text}: write hours:minutes:seconds, as in 12:00:00.")
    days, *parts = (int(part or 0) for part in match.groups())
    if match[1] is None and match[4] is None:
        parts = [0, *parts[:2]]
    hours, minutes, seconds = parts
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


def batch_script(
    name: str, arguments: Sequence[str], points: Sequence[int], workdir: pathlib.Path
) -> str:
    """The whole script; `points` make it an array."""
    if _SAVE_S.value >= (limit_s := time_limit_s(_TIME.value)):
        raise UserError(
            f"--time {_TIME.value}: {limit_s} s, and the run would save --save_s={_SAVE_S.value} s "
            "before their end, over and over again."
        )
    options = [
        f"--job-name=kpd-{name}",
        f"--nodes={NODES.value}",
        f"--ntasks-per-node={_TASKS.value}",
        f"--time={_TIME.value}",
        f"--output={workdir}/slurm/%x-{'%A_%a' if points else '%j'}.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=TERM@{_SAVE_S.value}",
    ]
    if _GPUS.value:
        options.append(f"--gpus-per-node={_GPUS.value}")
    if _CPUS.value:
        options.append(f"--cpus-per-task={_CPUS.value}")
    for flag, value in (("partition", _PARTITION.value), ("account", _SLURM_ACCOUNT.value)):
        if value:
            options.append(f"--{flag}={plain(f'--{flag}', value)}")
    if points:
        at_once = f"%{CONCURRENT.value}" if CONCURRENT.value else ""
        options.append(f"--array={numbers(points)}{at_once}")
        arguments = [*arguments, "--points=$SLURM_ARRAY_TASK_ID"]
    python = plain("--python", _PYTHON.value)
    command = [f"srun --kill-on-bad-exit=1 {python} -m experiments.launch", *arguments]
    lines = [
        "#!/bin/bash",
        f"# {name}, as a Slurm job: written by python -m launch.slurm.",
        *(f"#SBATCH {option}" for option in options),
        "",
        f"cd {plain('the current folder', str(pathlib.Path.cwd()))} || exit 1",
        "# Every process gets SIGTERM before the time limit, or where the job is preempted; the",
        f"# run then saves on all nodes and ends with {EXIT_INTERRUPTED}. This script outlives it.",
        "trap : TERM",
        "",
        " \\\n  ".join(command),
        "code=$?",
        f"if [ $code -eq {EXIT_INTERRUPTED} ]; then",
        "  # Everything is saved: the same job goes on from there.",
        "  scontrol requeue $SLURM_JOB_ID",
        "fi",
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run_main(main, JOB_FLAGS)
