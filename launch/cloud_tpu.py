"""`python -m launch.cloud_tpu --exp=NAME --accelerator_type=v5litepod-16 …`: a queued Cloud TPU.

Asks for the slice with gcloud's queued resources; every host of it then runs the container by a
startup script, with the bucket mounted as the folder of all runs. Whoever pays deletes the slice:
the command for it is printed.
"""

import pathlib
import re
from collections.abc import Sequence

from absl import flags

from experiments.launch import run_main
from launch.cloud import BUCKET, IMAGE, NAME, PROJECT, SPOT, require
from launch.job import default_name, is_dry_run, plain, resource_name, run_from_flags, submit
from models.errors import UserError

_TYPE = flags.DEFINE_string("accelerator_type", "v5litepod-16", "Kind and size of the slice.")
_RUNTIME = flags.DEFINE_string("runtime_version", None, "TPU VM image; by default the kind's.")
_ZONE = flags.DEFINE_string("zone", None, "Zone, as in us-west4-a.", required=False)

# Images by the start of the accelerator type (cloud.google.com/tpu/docs/runtimes).
_RUNTIMES = {
    "v4-": "tpu-ubuntu2204-base",
    "v5litepod-": "v2-alpha-tpuv5-lite",
    "v5p-": "v2-alpha-tpuv5",
    "v6e-": "v2-alpha-tpuv6e",
}
_RUNS = "/mnt/kpd"


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    arguments, points, experiment = run_from_flags(workdir=f"{_RUNS}/runs")
    if points:
        text = flags.FLAGS.points or f"1-{len(points)}"
        arguments.append(f"--points={plain('--points', text)}")
    require(_ZONE, IMAGE, BUCKET)
    name = resource_name("--name", NAME.value or default_name(experiment))
    script = pathlib.Path(flags.FLAGS.workdir) / "cloud_tpu" / f"{name}.sh"
    command = create_command(name, plain("--workdir", str(script)))
    dry_run = is_dry_run()
    hint = "Install the Google Cloud CLI, or --dry_run to see what would be done."
    code = submit({script: startup_script(arguments)}, command, hint, dry_run)
    delete = ["gcloud", "compute", "tpus", "queued-resources", "delete", name, "--force"]
    print("afterwards:", " ".join([*delete, f"--zone={_ZONE.value}", *_project()]))
    return code


def create_command(name: str, script: str) -> list[str]:
    """The call of gcloud that asks for the slice."""
    kind = plain("--accelerator_type", _TYPE.value)
    runtime = next((image for start, image in _RUNTIMES.items() if kind.startswith(start)), None)
    if not re.fullmatch(r"v\d+\w*-\d+", kind) or (runtime is None and not _RUNTIME.value):
        kinds = ", ".join(f"{start}N" for start in _RUNTIMES)
        raise UserError(f"--accelerator_type {kind}: known are {kinds}; else --runtime_version.")
    return [
        "gcloud",
        "compute",
        "tpus",
        "queued-resources",
        "create",
        name,
        f"--node-id={name}",
        f"--zone={plain('--zone', _ZONE.value)}",
        *_project(),
        f"--accelerator-type={kind}",
        f"--runtime-version={plain('--runtime_version', _RUNTIME.value or runtime or '')}",
        f"--metadata-from-file=startup-script={script}",
        *(["--spot"] if SPOT.value else []),
    ]


def _project() -> list[str]:
    return [f"--project={plain('--project', PROJECT.value)}"] if PROJECT.value else []


def startup_script(arguments: Sequence[str]) -> str:
    """What every host does when it has started, and again after a restart."""
    bucket, image = plain("--bucket", BUCKET.value), plain("--image", IMAGE.value)
    run = ["python -m experiments.launch --cluster", *arguments]
    return (
        "\n".join(
            [
                "#!/bin/bash",
                "# Written by python -m launch.cloud_tpu; runs as root on every host of the slice.",
                "set -euo pipefail",
                f"mkdir -p {_RUNS}",
                f"if ! mountpoint -q {_RUNS}; then",
                "  # gcsfuse as cloud.google.com/storage/docs/cloud-storage-fuse/install says.",
                "  . /etc/os-release",
                "  key=/usr/share/keyrings/cloud.google.asc",
                "  curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg -o $key",
                '  echo "deb [signed-by=$key] https://packages.cloud.google.com/apt '
                'gcsfuse-$VERSION_CODENAME main" > /etc/apt/sources.list.d/gcsfuse.list',
                "  apt-get update -qq && apt-get install -y -qq gcsfuse",
                f"  gcsfuse --implicit-dirs {bucket} {_RUNS}",
                "fi",
                "# The host's own identity fetches the image; no key is in this script.",
                f"gcloud auth configure-docker --quiet {image.split('/')[0]}",
                f"docker run --rm --privileged --net=host -v {_RUNS}:{_RUNS} \\",
                f"  -e KPD_CACHE={_RUNS}/cache {image} \\",
                "  " + " \\\n  ".join(run),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    run_main(main)
