"""`python -m launch.sky --exp=NAME --accelerators=H100:8 …`: a SkyPilot task, on any cloud.

Writes the task file and starts it as a managed job, which SkyPilot recovers after preemption.
"""

import pathlib
import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import run_main
from launch.cloud import BUCKET, IMAGE, NAME, NODES, SPOT, require, to_yaml
from launch.job import default_name, is_dry_run, plain, resource_name, run_from_flags, submit
from models.errors import UserError

_ACCELERATORS = flags.DEFINE_string("accelerators", "A100:1", "Kind and number for each node.")
_INFRA = flags.DEFINE_string("infra", None, "Cloud and region, as in gcp/us-central1; else any.")

_RUNS = "/mnt/kpd"
_PORT = 8476


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    arguments, points, experiment = run_from_flags(workdir=f"{_RUNS}/runs")
    if points and flags.FLAGS.points:
        arguments.append(f"--points={plain('--points', flags.FLAGS.points)}")
    require(IMAGE, BUCKET)
    name = resource_name("--name", NAME.value or default_name(experiment))
    path = pathlib.Path(plain("--workdir", flags.FLAGS.workdir)) / "sky" / f"{name}.yaml"
    text = to_yaml(task(name, arguments))
    command = ["sky", "jobs", "launch", "--yes", "--detach-run", f"--name={name}", str(path)]
    hint = "pip install skypilot, or --dry_run to see the task."
    return submit({path: text}, command, hint, is_dry_run())


def task(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The task in SkyPilot's YAML."""
    if not re.fullmatch(r"[A-Za-z0-9-]+:\d+", _ACCELERATORS.value):
        raise UserError(f"--accelerators {_ACCELERATORS.value}: write kind:number, as in H100:8.")
    run = ["python -m experiments.launch", *arguments]
    if NODES.value > 1:
        run += [
            f'--coordinator="$(echo "$SKYPILOT_NODE_IPS" | head -n1):{_PORT}"',
            '--num_processes="$SKYPILOT_NUM_NODES"',
            '--process_id="$SKYPILOT_NODE_RANK"',
        ]
    resources: dict[str, Any] = {
        "accelerators": _ACCELERATORS.value,
        "image_id": f"docker:{plain('--image', IMAGE.value)}",
        "use_spot": SPOT.value,
    }
    if _INFRA.value:
        resources["infra"] = plain("--infra", _INFRA.value)
    return {
        "name": name,
        "num_nodes": NODES.value,
        "resources": resources,
        "envs": {"KPD_CACHE": f"{_RUNS}/cache"},
        "file_mounts": {_RUNS: {"source": plain("--bucket", BUCKET.value), "mode": "MOUNT"}},
        "run": "cd /opt/kpd\n" + " \\\n  ".join(run) + "\n",
    }


if __name__ == "__main__":
    run_main(main)
