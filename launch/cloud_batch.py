"""`python -m launch.cloud_batch --exp=NAME --machine_type=a3-highgpu-8g …`: a Google Batch job.

Writes the job's JSON and submits it with gcloud. Batch makes GPU machines, mounts the bucket, runs
the container on each and takes the machines away. A study runs one point a task.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import EXIT_INTERRUPTED, run_main
from launch.cloud import BUCKET, CONCURRENT, IMAGE, NAME, NODES, PROJECT, SPOT, require
from launch.job import default_name, is_dry_run, plain, resource_name, run_from_flags, submit
from models.errors import UserError

_MACHINE = flags.DEFINE_string("machine_type", "a2-highgpu-1g", "Machine type of each node.")
_LOCATION = flags.DEFINE_string("location", None, "Region, as in us-central1.")
_HOURS = flags.DEFINE_integer("hours", 24, "Time limit.", lower_bound=1)

_RUNS = "/mnt/disks/kpd"
_PORT = 8476
# Batch's own exit code of a task whose spot machine was taken (cloud.google.com/batch/docs).
_EXIT_PREEMPTED = 50001
_RETRIES = 10


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    arguments, points, experiment = run_from_flags(workdir=f"{_RUNS}/runs")
    require(_LOCATION, IMAGE, BUCKET)
    if points and NODES.value > 1:
        raise UserError(f"--nodes {NODES.value}: a study runs one point on each machine; drop it.")
    name = resource_name("--name", NAME.value or default_name(experiment))
    path = pathlib.Path(plain("--workdir", flags.FLAGS.workdir)) / "cloud_batch" / f"{name}.json"
    text = json.dumps(batch_job(arguments, points), indent=2) + "\n"
    command = ["gcloud", "batch", "jobs", "submit", name]
    command += [f"--location={plain('--location', _LOCATION.value)}", f"--config={path}"]
    if PROJECT.value:
        command.append(f"--project={plain('--project', PROJECT.value)}")
    hint = "Install the Google Cloud CLI, or --dry_run to see the job."
    return submit({path: text}, command, hint, is_dry_run())


def batch_job(arguments: Sequence[str], points: Sequence[int]) -> dict[str, Any]:
    """The job in Batch's JSON."""
    nodes = NODES.value
    run = ["exec python -m experiments.launch", *arguments]
    if points:
        # Task i runs the i-th of the points asked for, counted from 0.
        run.append('--points="$(echo $KPD_POINTS | cut -d, -f$((BATCH_TASK_INDEX + 1)))"')
    if nodes > 1:
        run += [
            f'--coordinator="$BATCH_MAIN_NODE_HOSTNAME:{_PORT}"',
            f"--num_processes={nodes}",
            '--process_id="$BATCH_TASK_INDEX"',
        ]
    environment = {"KPD_CACHE": f"{_RUNS}/cache"}
    if points:
        environment["KPD_POINTS"] = ",".join(str(point) for point in points)
    task = {
        "runnables": [
            {
                "container": {
                    "imageUri": plain("--image", IMAGE.value),
                    "entrypoint": "/bin/sh",
                    "commands": ["-c", " ".join(run)],
                    "volumes": [f"{_RUNS}:{_RUNS}:rw"],
                    "options": "--privileged --network=host",
                },
                "environment": {"variables": environment},
            }
        ],
        "volumes": [
            {
                "gcs": {"remotePath": plain("--bucket", BUCKET.value)},
                "mountPath": _RUNS,
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
    run_main(main)
