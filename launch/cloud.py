"""What clouds share: flags, the run in a container beside a bucket, and how files are written."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml
from absl import flags

from launch.job import default_name, numbers, plain, resource_name, run_from_flags
from models.errors import UserError

NAME = flags.DEFINE_string("name", None, "Name of the job; by default the run's.")
NODES = flags.DEFINE_integer("nodes", 1, "Machines of the run.", lower_bound=1)
CONCURRENT = flags.DEFINE_integer("concurrent", 0, "Points of a study at the same time; 0: all.")
IMAGE = flags.DEFINE_string("image", None, "Container image built from the Containerfile.")
BUCKET = flags.DEFINE_string("bucket", None, "Bucket of all runs; hierarchical, for whole renames.")
SPOT = flags.DEFINE_bool("spot", False, "Takes machines that may be taken away again.")
PROJECT = flags.DEFINE_string("project", None, "Project; by default gcloud's.")

# The port at which the processes of a run meet.
PORT = 8476


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What is asked of a cloud, checked: every value stands unquoted in a file or a shell."""

    # Of the job and of its file.
    name: str
    file: pathlib.Path
    image: str
    bucket: str
    # Where a machine has the bucket, and the variables that say so.
    mount: str
    environment: dict[str, str]
    # Flags of `experiments.launch`, but for the points of a study, and those.
    arguments: list[str]
    points: list[int]

    @property
    def all_arguments(self) -> list[str]:
        """Flags of `experiments.launch` for one job that runs every point."""
        return [*self.arguments, *([f"--points={numbers(self.points)}"] if self.points else [])]


def request_from_flags(
    argv: Sequence[str],
    file: str,
    read: Sequence[flags.FlagHolder],
    needed: Sequence[flags.FlagHolder] = (),
    mount: str = "/mnt/kpd",
) -> Request:
    """The request that the command line makes.

    `file` is folder and ending, as in `gke/.yaml`; `read` are the shared flags that this cloud
    reads beside those of every request, `needed` its own that must be given.

    Raises:
      UserError: no such run, or a flag that is missing or has a value that no cloud would take.
    """
    read = (NAME, IMAGE, BUCKET, *read)
    arguments, points, experiment = run_from_flags(argv, read, workdir=f"{mount}/runs")
    for flag in (*needed, IMAGE, BUCKET):
        if not flag.value:
            raise UserError(f"--{flag.name}: missing.")
        plain(f"--{flag.name}", flag.value)
    name = resource_name("--name", NAME.value or default_name(experiment))
    folder, ending = file.split("/")
    return Request(
        name=name,
        file=pathlib.Path(plain("--workdir", flags.FLAGS.workdir)) / folder / f"{name}{ending}",
        image=IMAGE.value or "",
        bucket=BUCKET.value or "",
        mount=mount,
        environment={"KPD_CACHE": f"{mount}/cache"},
        arguments=arguments,
        points=points,
    )


def meeting_flags(first: str, count: int | str, index: str) -> list[str]:
    """Flags by which `count` machines meet at the first one's address."""
    return [f"--coordinator={first}:{PORT}", f"--num_processes={count}", f"--process_id={index}"]


def project_flags() -> list[str]:
    """gcloud's flag for the project, where one is asked for."""
    return [f"--project={plain('--project', PROJECT.value)}"] if PROJECT.value else []


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as it reads, not as one line with escapes."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: dict[str, Any]) -> str:
    """The value as YAML, in the order in which it was made."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=200)
