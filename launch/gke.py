"""`python -m launch.gke --exp=NAME --topology=v5e:4x4 …`: a JobSet for TPU slices or GPU nodes.

Writes the manifest and applies it with kubectl. The JobSet controller must be on the cluster; the
bucket is mounted by the Cloud Storage FUSE driver under the service account's own identity.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import run_main
from launch.cloud import BUCKET, IMAGE, NAME, SPOT, TOPOLOGY, require, to_yaml
from launch.job import default_name, is_dry_run, plain, resource_name, run_from_flags, submit
from launch.topology import parse_topology
from models.errors import UserError

_SLICES = flags.DEFINE_integer("slices", 1, "TPU slices; set mesh.replica to it.", lower_bound=1)
_NAMESPACE = flags.DEFINE_string("namespace", "default", "Namespace of the JobSet.")
_SERVICE_ACCOUNT = flags.DEFINE_string("service_account", "default", "May use the bucket.")

# Node labels and chips of a host (cloud.google.com/kubernetes-engine/docs/how-to/tpus, …/gpus).
_TPUS = {
    "v4": ("tpu-v4-podslice", 4),
    "v5e": ("tpu-v5-lite-podslice", 4),
    "v5p": ("tpu-v5p-slice", 4),
    "v6e": ("tpu-v6e-slice", 4),
}
_GPUS = {
    "a100-40gb": "nvidia-tesla-a100",
    "a100-80gb": "nvidia-a100-80gb",
    "h100": "nvidia-h100-80gb",
    "h200": "nvidia-h200-141gb",
}
_GPUS_PER_NODE = 8
_RUNS = "/mnt/kpd"
_PORT = 8476
# How often the JobSet starts anew after a host was lost; the run goes on from its checkpoint.
_RESTARTS = 20
# Seconds from SIGTERM to SIGKILL, in which a run saves.
_GRACE_S = 120


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    arguments, points, experiment = run_from_flags(workdir=f"{_RUNS}/runs")
    if points and flags.FLAGS.points:
        arguments.append(f"--points={plain('--points', flags.FLAGS.points)}")
    require(IMAGE, BUCKET)
    name = resource_name("--name", NAME.value or default_name(experiment))
    path = pathlib.Path(plain("--workdir", flags.FLAGS.workdir)) / "gke" / f"{name}.yaml"
    text = to_yaml(job_set(name, arguments))
    hint = "Install kubectl and gke-gcloud-auth-plugin, or --dry_run to see the manifest."
    return submit({path: text}, ["kubectl", "apply", f"--filename={path}"], hint, is_dry_run())


def job_set(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The JobSet: one job for each TPU slice, or one with a pod for each GPU node."""
    chip, count, shape = parse_topology(TOPOLOGY.value)
    if chip in _TPUS:
        label, per_host = _TPUS[chip]
        per_host = min(per_host, count)
        selector = {
            "cloud.google.com/gke-tpu-accelerator": label,
            "cloud.google.com/gke-tpu-topology": shape,
        }
        resource, slices = "google.com/tpu", _SLICES.value
        # GKE tells every pod of a slice who the others are.
        meet = ["--cluster"]
    elif chip in _GPUS:
        per_host = min(_GPUS_PER_NODE, count)
        selector = {"cloud.google.com/gke-accelerator": _GPUS[chip]}
        resource, slices = "nvidia.com/gpu", 1
        meet = [
            f"--coordinator={name}-workers-0-0.{name}:{_PORT}",
            f"--num_processes={count // per_host}",
            "--process_id=$(JOB_COMPLETION_INDEX)",
        ]
    else:
        raise UserError(f"--topology {TOPOLOGY.value}: GKE runs {', '.join((*_TPUS, *_GPUS))}.")
    if count % per_host:
        raise UserError(f"--topology {TOPOLOGY.value}: a host has {per_host} devices.")
    if SPOT.value:
        selector["cloud.google.com/gke-spot"] = "true"
    pod = _pod(arguments, meet, selector, {resource: str(per_host)})
    hosts = count // per_host
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": resource_name("--namespace", _NAMESPACE.value),
            # Pods of a slice go to nodes of one pool, and no other job's beside them.
            "annotations": {
                "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"
            },
        },
        "spec": {
            "failurePolicy": {"maxRestarts": _RESTARTS},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "replicatedJobs": [
                {
                    "name": "workers",
                    "replicas": slices,
                    "template": {
                        "spec": {
                            "parallelism": hosts,
                            "completions": hosts,
                            "completionMode": "Indexed",
                            # One lost pod ends its job, and the JobSet starts all of them anew.
                            "backoffLimit": 0,
                            "template": pod,
                        }
                    },
                }
            ],
        },
    }


def _pod(
    arguments: Sequence[str],
    meet: Sequence[str],
    selector: dict[str, str],
    devices: dict[str, str],
) -> dict[str, Any]:
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    return {
        "metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": _GRACE_S,
            "serviceAccountName": resource_name("--service_account", _SERVICE_ACCOUNT.value),
            "nodeSelector": selector,
            "containers": [
                {
                    "name": "kpd",
                    "image": plain("--image", IMAGE.value),
                    "command": ["python", "-m", "experiments.launch"],
                    "args": [*arguments, *meet],
                    "env": [
                        {"name": "KPD_CACHE", "value": f"{_RUNS}/cache"},
                        {
                            "name": "JOB_COMPLETION_INDEX",
                            "valueFrom": {"fieldRef": {"fieldPath": index}},
                        },
                    ],
                    "ports": [{"containerPort": _PORT}],
                    "resources": {"requests": dict(devices), "limits": dict(devices)},
                    "volumeMounts": [{"name": "runs", "mountPath": _RUNS}],
                }
            ],
            "volumes": [
                {
                    "name": "runs",
                    "csi": {
                        "driver": "gcsfuse.csi.storage.gke.io",
                        "volumeAttributes": {
                            "bucketName": plain("--bucket", BUCKET.value),
                            "mountOptions": "implicit-dirs",
                        },
                    },
                }
            ],
        },
    }


if __name__ == "__main__":
    run_main(main)
