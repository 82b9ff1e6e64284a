"""`python -m launch.gke --exp=NAME --topology=v5e:4x4 …`: a JobSet for TPU slices or GPU nodes.

Writes the manifest and applies it with kubectl. The JobSet controller must be on the cluster; the
bucket is mounted by the Cloud Storage FUSE driver under the service account's own identity.
"""

from collections.abc import Sequence
from typing import Any

from absl import flags

from experiments.launch import JOB_FLAGS, run_main
from launch.cloud import PORT, SPOT, Request, meeting_flags, request_from_flags, to_yaml
from launch.job import resource_name, submit
from launch.topology import TOPOLOGY, parse_topology
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
# How often the JobSet starts anew after a host was lost; the run goes on from its checkpoint.
_RESTARTS = 20
# Seconds from SIGTERM to SIGKILL, in which a run saves.
_GRACE_S = 120


def main(argv: Sequence[str]) -> int:
    request = request_from_flags(argv, "gke/.yaml", read=(SPOT,))
    command = ["kubectl", "apply", f"--filename={request.file}"]
    hint = "Install kubectl and gke-gcloud-auth-plugin, or --dry_run to see the manifest."
    return submit(request.file, to_yaml(job_set(request)), command, hint)


def job_set(request: Request) -> dict[str, Any]:
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
        if _SLICES.value > 1:
            raise UserError(f"--slices {_SLICES.value}: of TPUs; {chip} devices need none.")
        per_host = min(_GPUS_PER_NODE, count)
        selector = {"cloud.google.com/gke-accelerator": _GPUS[chip]}
        resource, slices = "nvidia.com/gpu", 1
        first = f"{request.name}-workers-0-0.{request.name}"
        meet = meeting_flags(first, count // per_host, "$(JOB_COMPLETION_INDEX)")
    else:
        raise UserError(f"--topology {TOPOLOGY.value}: GKE runs {', '.join((*_TPUS, *_GPUS))}.")
    if count % per_host:
        raise UserError(f"--topology {TOPOLOGY.value}: a host has {per_host} devices.")
    if SPOT.value:
        selector["cloud.google.com/gke-spot"] = "true"
    pod = _pod(request, meet, selector, {resource: str(per_host)})
    hosts = count // per_host
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": request.name,
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
    request: Request,
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
                    "image": request.image,
                    "command": ["python", "-m", "experiments.launch"],
                    "args": [*request.all_arguments, *meet],
                    "env": [
                        *({"name": k, "value": v} for k, v in request.environment.items()),
                        {
                            "name": "JOB_COMPLETION_INDEX",
                            "valueFrom": {"fieldRef": {"fieldPath": index}},
                        },
                    ],
                    "ports": [{"containerPort": PORT}],
                    "resources": {"requests": dict(devices), "limits": dict(devices)},
                    "volumeMounts": [{"name": "runs", "mountPath": request.mount}],
                }
            ],
            "volumes": [
                {
                    "name": "runs",
                    "csi": {
                        "driver": "gcsfuse.csi.storage.gke.io",
                        "volumeAttributes": {
                            "bucketName": request.bucket,
                            "mountOptions": "implicit-dirs",
                        },
                    },
                }
            ],
        },
    }


if __name__ == "__main__":
    run_main(main, JOB_FLAGS)
