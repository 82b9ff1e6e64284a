"""`python -m launch.cloud_tpu --exp=NAME --accelerator_type=v5litepod-16 …`: a queued Cloud TPU.

Asks for the slice with gcloud's queued resources; every host of it then runs the container by a
startup script, with the bucket mounted as the folder of all runs. Whoever pays deletes the slice:
the command for it is printed.
"""

import re
from collections.abc import Sequence

from absl import flags

from experiments.launch import JOB_FLAGS, run_main
from launch.cloud import PROJECT, SPOT, Request, project_flags, request_from_flags
from launch.job import plain, submit
from models.errors import UserError

_TYPE = flags.DEFINE_string("accelerator_type", "v5litepod-16", "Kind and size of the slice.")
_RUNTIME = flags.DEFINE_string("runtime_version", None, "TPU VM image; by default the kind's.")
_ZONE = flags.DEFINE_string("zone", None, "Zone, as in us-west4-a.")

# Images by the start of the accelerator type (cloud.google.com/tpu/docs/runtimes).
_RUNTIMES = {
    "v4-": "tpu-ubuntu2204-base",
    "v5litepod-": "v2-alpha-tpuv5-lite",
    "v5p-": "v2-alpha-tpuv5",
    "v6e-": "v2-alpha-tpuv6e",
}
_QUEUED = ["gcloud", "compute", "tpus", "queued-resources"]


def main(argv: Sequence[str]) -> int:
    request = request_from_flags(argv, "cloud_tpu/.sh", read=(SPOT, PROJECT), needed=(_ZONE,))
    hint = "Install the Google Cloud CLI, or --dry_run to see what would be done."
    code = submit(request.file, startup_script(request), create_command(request), hint)
    delete = [*_QUEUED, "delete", request.name, "--force", f"--zone={_ZONE.value}"]
    print("afterwards:", " ".join([*delete, *project_flags()]))
    return code


def create_command(request: Request) -> list[str]:
    """The call of gcloud that asks for the slice."""
    kind = plain("--accelerator_type", _TYPE.value)
    runtime = next((image for start, image in _RUNTIMES.items() if kind.startswith(start)), None)
    if not re.fullmatch(r"v\d+\w*-\d+", kind) or (runtime is None and not _RUNTIME.value):
        kinds = ", ".join(f"{start}N" for start in _RUNTIMES)
        raise UserError(f"--accelerator_type {kind}: known are {kinds}; else --runtime_version.")
    return [
        *_QUEUED,
        "create",
        request.name,
        f"--node-id={request.name}",
        f"--zone={_ZONE.value}",
        *project_flags(),
        f"--accelerator-type={kind}",
        f"--runtime-version={plain('--runtime_version', _RUNTIME.value or runtime or '')}",
        f"--metadata-from-file=startup-script={request.file}",
        *(["--spot"] if SPOT.value else []),
    ]


def startup_script(request: Request) -> str:
    """What every host does when it has started, and again after a restart."""
    run = ["python -m experiments.launch --cluster", *request.all_arguments]
    variables = [f"-e {name}={value}" for name, value in request.environment.items()]
    mount, image = request.mount, request.image
    return (
        "\n".join(
            [
                "#!/bin/bash",
                "# Written by python -m launch.cloud_tpu; runs as root on every host of the slice.",
                "set -euo pipefail",
                f"mkdir -p {mount}",
                f"if ! mountpoint -q {mount}; then",
                "  # gcsfuse as cloud.google.com/storage/docs/cloud-storage-fuse/install says.",
                "  . /etc/os-release",
                "  key=/usr/share/keyrings/cloud.google.asc",
                "  curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg -o $key",
                '  echo "deb [signed-by=$key] https://packages.cloud.google.com/apt '
                'gcsfuse-$VERSION_CODENAME main" > /etc/apt/sources.list.d/gcsfuse.list',
                "  apt-get update -qq && apt-get install -y -qq gcsfuse",
                f"  gcsfuse --implicit-dirs {request.bucket} {mount}",
                "fi",
                "# The host's own identity fetches the image; no key is in this script.",
                f"gcloud auth configure-docker --quiet {image.split('/')[0]}",
                f"docker run --rm --privileged --net=host -v {mount}:{mount} \\",
                f"  {' '.join(variables)} {image} \\",
                "  " + " \\\n  ".join(run),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    run_main(main, JOB_FLAGS)
