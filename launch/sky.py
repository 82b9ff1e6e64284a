"""`python -m launch.sky --exp=NAME --accelerators=H100:8 …`: a SkyPilot task, on any cloud.

Writes the task file and starts it as a managed job, which SkyPilot recovers after preemption.
"""

import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import JOB_FLAGS, run_main
from launch.cloud import NODES, SPOT, Request, meeting_flags, request_from_flags, to_yaml
from launch.job import plain, submit
from models.errors import UserError

_ACCELERATORS = flags.DEFINE_string("accelerators", "A100:1", "Kind and number for each node.")
_INFRA = flags.DEFINE_string("infra", None, "Cloud and region, as in gcp/us-central1; else any.")


def main(argv: Sequence[str]) -> int:
    request = request_from_flags(argv, "sky/.yaml", read=(NODES, SPOT))
    command = ["sky", "jobs", "launch", "--yes", "--detach-run", f"--name={request.name}"]
    hint = "pip install skypilot, or --dry_run to see the task."
    return submit(request.file, to_yaml(task(request)), [*command, str(request.file)], hint)


def task(request: Request) -> dict[str, Any]:
    """The task in SkyPilot's YAML."""
    if not re.fullmatch(r"[A-Za-z0-9-]+:\d+", _ACCELERATORS.value):
        raise UserError(f"--accelerators {_ACCELERATORS.value}: write kind:number, as in H100:8.")
    run = ["python -m experiments.launch", *request.all_arguments]
    if NODES.value > 1:
        first = '"$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'
        run += meeting_flags(first, '"$SKYPILOT_NUM_NODES"', '"$SKYPILOT_NODE_RANK"')
    resources: dict[str, Any] = {
        "accelerators": _ACCELERATORS.value,
        "image_id": f"docker:{request.image}",
        "use_spot": SPOT.value,
    }
    if _INFRA.value:
        resources["infra"] = plain("--infra", _INFRA.value)
    return {
        "name": request.name,
        "num_nodes": NODES.value,
        "resources": resources,
        "envs": request.environment,
        "file_mounts": {request.mount: {"source": request.bucket, "mode": "MOUNT"}},
        "run": "cd /opt/kpd\n" + " \\\n  ".join(run) + "\n",
    }


if __name__ == "__main__":
    run_main(main, JOB_FLAGS)
