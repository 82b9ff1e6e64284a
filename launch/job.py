"""What every scheduler is given: the flags of the run, and how its own client is called."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from absl import flags

from experiments import registry
from experiments.config import Experiment
from experiments.launch import JOB_FLAGS, runs_from_flags
from models.errors import UserError

# Flags of `experiments.launch` that a job hands on as they were given.
_HANDED_ON = tuple(name for name in JOB_FLAGS if name not in ("points", "dry_run"))
# The module whose flags not every scheduler reads.
_SHARED = "launch.cloud"


def is_dry_run() -> bool:
    """Whether --dry_run, a flag of `experiments.launch`, is given."""
    return bool(flags.FLAGS["dry_run"].value)


def run_from_flags(
    argv: Sequence[str], read: Sequence[flags.FlagHolder], workdir: str | None = None
) -> tuple[list[str], list[int], Experiment]:
    """(flags of the run, points of a study, first of its runs), checked before anything is sent.

    Of one experiment the points are empty. `argv` is what absl left of the command line, `read`
    are the shared flags that this command reads, `workdir` replaces --workdir.

    Raises:
      UserError: no such experiment, a wrong setting, a value that would need quoting, or a flag
        that this command would silently leave out.
    """
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    values = flags.FLAGS
    for flag in values.flags_by_module_dict()[_SHARED]:
        if flag.present and flag.name not in {one.name for one in read}:
            raise UserError(f"--{flag.name}: not a flag of this command; --help shows those.")
    runs = runs_from_flags()
    arguments = []
    for name in _HANDED_ON:
        if name == "workdir" and workdir is not None:
            arguments.append(f"--workdir={plain('--workdir', workdir)}")
            continue
        if not values[name].present:
            continue
        given = values[name].value
        if isinstance(given, bool):
            arguments.append(f"--{name}" if given else f"--no{name}")
            continue
        if name == "track":
            given = ",".join(given or [])
        for one in given if isinstance(given, list) else [given]:
            arguments.append(f"--{name}={plain(f'--{name}', str(one))}")
    return arguments, _points(len(runs)), runs[0]


def _points(count: int) -> list[int]:
    from experiments.study import parse_points

    if flags.FLAGS.exp not in registry.all_studies():
        return []
    text = flags.FLAGS.points
    study = registry.resolve_study(flags.FLAGS.exp, flags.FLAGS.scale)
    return parse_points(text, len(study.runs)) if text else list(range(1, count + 1))


def plain(what: str, value: str | None) -> str:
    """The value, if every shell reads it as it stands; raises UserError where it needs quoting."""
    if not value or shlex.quote(value) != value:
        allowed = "letters, digits and any of @%+=:,./-_"
        raise UserError(f"{what} {value!r}: would need quoting in a job; use only {allowed}.")
    return value


def resource_name(what: str, value: str) -> str:
    """The value, if it can name something in a cloud (RFC 1123 label); raises UserError."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", value):
        raise UserError(
            f"{what} {value!r}: must start with a letter and have at most 52 lower-case letters, "
            "digits and dashes."
        )
    return value


def default_name(experiment: Experiment) -> str:
    """A name for a job of this experiment, as clouds allow it."""
    text = re.sub(r"[^a-z0-9]+", "-", flags.FLAGS.exp.lower()).strip("-")
    return f"kpd-{text}-s{experiment.seed}"[:52].strip("-")


def submit(path: pathlib.Path, text: str, command: Sequence[str], hint: str) -> int:
    """Writes the file of a job and calls the scheduler's client; a dry run only prints both.

    Raises:
      UserError: the client is not installed, or failed; with the last line that it said.
    """
    dry_run = is_dry_run()
    if dry_run:
        print(f"# {path}\n{text.rstrip()}\n")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    line = " ".join(shlex.quote(part) for part in command)
    print(f"{'would run' if dry_run else 'running'}: {line}", flush=True)
    if dry_run:
        return 0
    client = shutil.which(command[0])
    if client is None:
        raise UserError(f"{command[0]}: not installed, or not on PATH. {hint}")
    done = subprocess.run([client, *command[1:]], capture_output=True, text=True)
    sys.stdout.write(done.stdout)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise UserError(f"{command[0]} failed with exit code {done.returncode}: {said[:300]}")
    sys.stderr.write(done.stderr)
    return 0


def numbers(points: Sequence[int]) -> str:
    """`1-3,7` for 1, 2, 3, 7."""
    ranges: list[list[int]] = []
    for point in sorted(points):
        if ranges and point == ranges[-1][1] + 1:
            ranges[-1][1] = point
        else:
            ranges.append([point, point])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
