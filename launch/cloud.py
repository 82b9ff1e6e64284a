"""Flags that several schedulers share, and how their files are written."""

from typing import Any

import yaml
from absl import flags

from models.errors import UserError

NAME = flags.DEFINE_string("name", None, "Name of the job; by default the run's.")
NODES = flags.DEFINE_integer("nodes", 1, "Machines of the run.", lower_bound=1)
CONCURRENT = flags.DEFINE_integer("concurrent", 0, "Points of a study at the same time; 0: all.")
TOPOLOGY = flags.DEFINE_string("topology", "v5e:4x4", "Chip and how many: v5e:4x4, h100:8, cpu:8.")
IMAGE = flags.DEFINE_string("image", None, "Container image built from the Containerfile.")
BUCKET = flags.DEFINE_string("bucket", None, "Bucket of all runs; hierarchical, for whole renames.")
SPOT = flags.DEFINE_bool("spot", False, "Takes machines that may be taken away again.")
PROJECT = flags.DEFINE_string("project", None, "Project; by default gcloud's.")


def require(*given: flags.FlagHolder) -> None:
    """Raises UserError for the first flag that has no value."""
    for flag in given:
        if not flag.value:
            raise UserError(f"--{flag.name}: missing.")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as it reads, not as one line with escapes."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: dict[str, Any]) -> str:
    """The value as YAML, in the order in which it was made."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=200)
