"""`python -m launch.cloud_batch --exp=NAME --machine_type=a3-highgpu-8g …`: a Google Batch job.

Writes the job's JSON and submits it with gcloud. Batch makes GPU machines, mounts the bucket, runs
the container on each and takes the machines away. A study runs one point a task.
"""

import json
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import EXIT_INTERRUPTED, JOB_FLAGS, run_main
from launch.cloud import (
    CONCURRENT,
    NODES,
    PROJECT,
    SPOT,
    Request,
    meeting_flags,
    project_flags,
    request_from_flags,
)
from launch.job import plain, submit
from models.errors import UserError

_MACHINE = flags.DEFINE_string("machine_type", "a2-highgpu-1g", "Machine type of each node.")
_LOCATION = flags.DEFINE_string("location", None, "Region, as in us-central1.")
_HOURS = flags.DEFINE_integer("hours", 24, "Time limit.", lower_bound=1)

# Batch mounts buckets there alone.
_MOUNT = "/mnt/disks/kpd"
# Batch's own exit code of a task whose spot machine was taken (cloud.google.com/batch/docs).
_EXIT_PREEMPTED = 50001
_RETRIES = 10


def main(argv: Sequence[str]) -> int:
    request = request_from_flags(
        argv,
        "cloud_batch/.json",
        read=(NODES, CONCURRENT, SPOT, PROJECT),
        needed=(_LOCATION,),
        mount=_MOUNT,
    )
    if request.points and NODES.value > 1:
        raise UserError(f"--nodes {NODES.value}: a study runs one point on each machine; drop it.")
    command = ["gcloud", "batch", "jobs", "submit", request.name]
    command += [f"--location={_LOCATION.value}", f"--config={request.file}", *project_flags()]
    hint = "Install the Google Cloud CLI, or --dry_run to see the job."
    return submit(request.file, json.dumps(batch_job(request), indent=2) + "\n", command, hint)


def batch_job(request: Request) -> dict[str, Any]:
    """The job in Batch's JSON."""
    nodes, points = NODES.value, request.points
    run = ["exec python -m experiments.launch", *request.arguments]
    if points:
        # Task i runs the i-th of the points asked for, counted from 0.
        run.append('--points="$(echo $KPD_POINTS | cut -d, -f$((BATCH_TASK_INDEX + 1)))"')
    if nodes > 1:
        run += meeting_flags('"$BATCH_MAIN_NODE_HOSTNAME"', nodes, '"$BATCH_TASK_INDEX"')
    environment = dict(request.environment)
    if points:
        environment["KPD_POINTS"] = ",".join(str(point) for point in points)
    task = {
        "runnables": [
            {
                "container": {
                    "imageUri": request.image,
                    "entrypoint": "/bin/sh",
                    "commands": ["-c", " ".join(run)],
                    "volumes": [f"{_MOUNT}:{_MOUNT}:rw"],
                    "options": "--privileged --network=host",
                },
                "environment": {"variables": environment},
            }
        ],
        "volumes": [
            {
                "gcs": {"remotePath": request.bucket},
                "mountPath": _MOUNT,
                "mountOptions": ["--implicit-dirs"],
            }
        ],
        "maxRetryCount": _RETRIES,
        "maxRunDuration": f"{3600 * _HOURS.value}s",
        "lifecyclePolicies": [
            {
                "action": "RETRY_TASK",
                "actionCondition": {"exitCodes": [EXIT_INTERRUPTED, _EXIT_PREEMPTED]},
            }
        ],
    }
    count = len(points) or nodes
    return {
        "taskGroups": [
            {
                "taskCount": count,
                "parallelism": min(CONCURRENT.value or count, count) if points else count,
                "taskCountPerNode": 1,
                "requireHostsFile": nodes > 1,
                "taskSpec": task,
            }
        ],
        "allocationPolicy": {
            "instances": [
                {
                    "installGpuDrivers": True,
                    "policy": {
                        "machineType": plain("--machine_type", _MACHINE.value),
                        "provisioningModel": "SPOT" if SPOT.value else "STANDARD",
                    },
                }
            ]
        },
        "logsPolicy": {"destination": "CLOUD_LOGGING"},
    }


if __name__ == "__main__":
    run_main(main, JOB_FLAGS)
