"""What schedulers are given: files that their schemas accept, no secrets, and how clients fail."""

import ast
import json
import pathlib
import subprocess

import pytest
import yaml
from absl import flags
from absl.testing import flagsaver

from launch import cloud_batch, cloud_tpu, gke, job, sky, slurm
from models.errors import UserError

IMAGE = "europe-docker.pkg.dev/project/kpd/kpd:1.0"
CLOUD = [f"--image={IMAGE}", "--bucket=my-runs"]
COMMANDS = {
    "slurm": (slurm, ["--nodes=2"], "sbatch"),
    "cloud_tpu": (cloud_tpu, ["--zone=us-west4-a", *CLOUD], "gcloud"),
    "gke": (gke, CLOUD, "kubectl"),
    "cloud_batch": (cloud_batch, ["--location=us-central1", *CLOUD], "gcloud"),
    "sky": (sky, [f"--image={IMAGE}", "--bucket=gs://my-runs"], "sky"),
}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Calls a command in this process, in an empty folder; returns its exit code."""
    monkeypatch.chdir(tmp_path)

    def call(module, arguments):
        with flagsaver.flagsaver():
            flags.FLAGS.unparse_flags()
            argv = flags.FLAGS(["launch", *arguments])
            return module.main(argv)

    yield call
    flags.FLAGS.unparse_flags()
    flags.FLAGS.mark_as_parsed()


@pytest.fixture
def client(monkeypatch, tmp_path):
    """Puts an executable on PATH that writes down its arguments, or fails."""

    def make(name, code=0, says=""):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        recorded = tmp_path / f"{name}.arguments"
        path = folder / name
        path.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$@" > {recorded}\necho "{says}" >&2\nexit {code}\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return recorded

    return make


def written(suffix):
    return next(pathlib.Path("runs").rglob(f"*{suffix}"))


@pytest.mark.parametrize("name", COMMANDS)
def test_dry_run_prints_everything_and_writes_nothing(run, capsys, tmp_path, name):
    module, arguments, client_name = COMMANDS[name]
    assert run(module, ["--exp=dense_t5", "--seed=3", *arguments, "--dry_run"]) == 0
    shown = capsys.readouterr().out
    assert f"would run: {client_name} " in shown
    assert "--exp=dense_t5" in shown and "--seed=3" in shown
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("name", COMMANDS)
def test_client_is_called_and_its_failure_told(run, client, monkeypatch, name):
    module, arguments, client_name = COMMANDS[name]
    recorded = client(client_name)
    assert run(module, ["--exp=dense_t5", *arguments]) == 0
    given = recorded.read_text().split("\n")
    files = [part.rpartition("=")[2] for part in given if "runs/" in part]
    assert len(files) == 1 and pathlib.Path(files[0]).exists()

    client(client_name, code=7, says="quota exceeded")
    with pytest.raises(UserError, match=f"{client_name} failed with exit code 7: quota exceeded"):
        run(module, ["--exp=dense_t5", *arguments])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=f"{client_name}: not installed.*--dry_run"):
        run(module, ["--exp=dense_t5", *arguments])


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "bad",
    ["--set=data.files=/data/*.txt", "--set=data.files=/my data/a.txt", "--set=data.files=$HOME/a"],
)
def test_what_would_need_quoting_is_refused(run, name, bad):
    module, arguments, _ = COMMANDS[name]
    with pytest.raises(UserError, match="would need quoting"):
        run(module, ["--exp=dense_t5", *arguments, bad, "--dry_run"])


@pytest.mark.parametrize("name", ["cloud_tpu", "gke", "cloud_batch", "sky"])
def test_names_that_clouds_refuse_are_refused(run, name):
    module, arguments, _ = COMMANDS[name]
    for bad in ("My_Run", "-x", "a" * 60):
        with pytest.raises(UserError, match="--name"):
            run(module, ["--exp=dense_t5", *arguments, f"--name={bad}", "--dry_run"])
    with pytest.raises(UserError, match="--image"):
        run(
            module,
            ["--exp=dense_t5", "--zone=z", "--location=l", "--bucket=b", "--dry_run"][:1]
            + [one for one in arguments if not one.startswith("--image")],
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_no_secret_of_the_environment_is_in_a_file(run, client, monkeypatch, capsys, name):
    module, arguments, client_name = COMMANDS[name]
    client(client_name)
    for variable in ("WANDB_API_KEY", "HF_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.setenv(variable, "s3cr3t")
    run(module, ["--exp=dense_t5", *arguments])
    files = [path for path in pathlib.Path("runs").rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert "s3cr3t" not in path.read_text()
    assert "s3cr3t" not in capsys.readouterr().out


def test_slurm_script_is_valid_and_asks_for_what_was_given(run, client):
    client("sbatch")
    arguments = ["--nodes=2", "--tasks_per_node=4", "--gpus_per_node=4", "--time=2-00:00:00"]
    run(slurm, ["--exp=dense_t5", *arguments, "--partition=a100", "--slurm_account=lab"])
    script = written(".sbatch")
    text = script.read_text()
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    for option in (
        "nodes=2",
        "ntasks-per-node=4",
        "gpus-per-node=4",
        "time=2-00:00:00",
        "partition=a100",
        "account=lab",
        "requeue",
        "signal=TERM@120",
    ):
        assert f"#SBATCH --{option}\n" in text
    assert "--points" not in text and "--array" not in text
    with pytest.raises(UserError, match="--time soon"):
        run(slurm, ["--exp=dense_t5", "--time=soon", "--dry_run"])
    with pytest.raises(UserError, match=r"--time 2: 120 s, .* over and over again"):
        run(slurm, ["--exp=dense_t5", "--time=2", "--dry_run"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 600), ("10:30", 630), ("1:00:00", 3600), ("2-0", 172800), ("1-2:03", 93780),
     ("1-02:03:04", 93784)],
)  # fmt: skip
def test_time_limits_are_read_as_slurm_reads_them(text, seconds):
    assert slurm.time_limit_s(text) == seconds


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("gke", "--nodes=4"),
        ("slurm", "--image=x"),
        ("sky", "--project=mine"),
        ("cloud_tpu", "--concurrent=2"),
    ],
)
def test_a_flag_that_would_be_left_out_is_refused(run, name, flag):
    module, arguments, _ = COMMANDS[name]
    with pytest.raises(UserError, match=f"{flag.partition('=')[0]}: not a flag of"):
        run(module, ["--exp=dense_t5", *arguments, flag, "--dry_run"])


def test_slices_are_of_tpus(run):
    with pytest.raises(UserError, match="--slices 2: of TPUs"):
        run(gke, ["--exp=dense_t5", *CLOUD, "--topology=h100:16", "--slices=2", "--dry_run"])


def test_a_study_is_an_array_with_a_task_for_each_point(run, client):
    client("sbatch")
    run(slurm, ["--exp=study_sparse_t5", "--points=1-3,5", "--concurrent=2"])
    text = written(".sbatch").read_text()
    assert "#SBATCH --array=1-3,5%2\n" in text
    assert "  --points=$SLURM_ARRAY_TASK_ID\n" in text
    client("gcloud")
    run(cloud_batch, ["--exp=study_sparse_t5", "--points=2,4-5", *COMMANDS["cloud_batch"][1]])
    batch = json.loads(written(".json").read_text())
    assert batch["taskGroups"][0]["taskCount"] == 3
    command = batch["taskGroups"][0]["taskSpec"]["runnables"][0]["container"]["commands"][1]
    shown = command.replace("exec python -m experiments.launch", "echo")
    for index, point in enumerate((2, 4, 5)):
        done = subprocess.run(
            ["sh", "-c", shown],
            env={"BATCH_TASK_INDEX": str(index), "KPD_POINTS": "2,4,5", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert f"--points={point}" in done.stdout.split()
    with pytest.raises(UserError, match="one point on each machine"):
        run(cloud_batch, ["--exp=study_sparse_t5", "--nodes=2", *COMMANDS["cloud_batch"][1]])


# Fields of JobSet's v1alpha2 (jobset.sigs.k8s.io/docs/reference); templates are Kubernetes' own.
JOB_SET = {
    "apiVersion": str,
    "kind": str,
    "metadata": dict,
    "spec": {
        "replicatedJobs": [{"name": str, "groupName": str, "template": dict, "replicas": int}],
        "network": {
            "enableDNSHostnames": bool,
            "subdomain": str,
            "publishNotReadyAddresses": bool,
        },
        "successPolicy": {"operator": str, "targetReplicatedJobs": list},
        "failurePolicy": {"maxRestarts": int, "restartStrategy": str, "rules": list},
        "suspend": bool,
        "coordinator": {"replicatedJob": str, "jobIndex": int, "podIndex": int},
        "managedBy": str,
        "ttlSecondsAfterFinished": int,
    },
}
# Fields of a SkyPilot task (docs.skypilot.co/en/latest/reference/yaml-spec.html) that matter here.
SKY = {
    "name": str,
    "workdir": str,
    "num_nodes": int,
    "resources": {
        "accelerators": str,
        "image_id": str,
        "use_spot": bool,
        "infra": str,
        "disk_size": int,
        "job_recovery": str,
    },
    "envs": dict,
    "file_mounts": dict,
    "setup": str,
    "run": str,
}


def check_fields(value, documented, path=""):
    """Fails on a field that is not documented, and on a value of another type."""
    if isinstance(documented, dict):
        assert isinstance(value, dict), path
        for name, inner in value.items():
            assert name in documented, f"{path}.{name} is not a documented field"
            check_fields(inner, documented[name], f"{path}.{name}")
    elif isinstance(documented, list):
        for index, inner in enumerate(value):
            check_fields(inner, documented[0], f"{path}[{index}]")
    else:
        assert isinstance(value, documented), f"{path}: {value!r}"


@pytest.mark.parametrize("topology", ["v5e:4x4", "v5e:2x2", "v4:2x2x4", "h100:16", "a100-80gb:4"])
def test_job_set_passes_both_schemas(run, client, topology):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    client("kubectl")
    run(gke, ["--exp=dense_t5", f"--topology={topology}", "--spot", *CLOUD])
    found = yaml.safe_load(written(".yaml").read_text())
    check_fields(found, JOB_SET)
    version = kubernetes_validate.latest_version()
    for replicated in found["spec"]["replicatedJobs"]:
        one = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
        kubernetes_validate.validate(one | replicated["template"], version, strict=True)
        job_spec = replicated["template"]["spec"]
        limits = job_spec["template"]["spec"]["containers"][0]["resources"]["limits"]
        (per_host,) = limits.values()
        sizes = topology.partition(":")[2].split("x")
        count = 1
        for size in sizes:
            count *= int(size)
        assert job_spec["completions"] * int(per_host) == count
    # A field that neither schema knows is seen.
    found["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 1
    template = found["spec"]["replicatedJobs"][0]["template"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(one | template, version, strict=True)
    with pytest.raises(AssertionError, match="not a documented field"):
        check_fields({"spec": {"restarts": 3}}, JOB_SET)


@pytest.mark.parametrize("more", [["--nodes=4", "--spot"], []])
def test_batch_job_is_what_googles_own_client_reads(run, client, more):
    batch_v1 = pytest.importorskip("google.cloud.batch_v1")
    from google.protobuf import json_format

    client("gcloud")
    run(cloud_batch, ["--exp=dense_t5", *COMMANDS["cloud_batch"][1], *more])
    text = written(".json").read_text()
    found = json_format.Parse(text, batch_v1.Job.pb(batch_v1.Job()))
    assert found.task_groups[0].task_count == (4 if more else 1)
    with pytest.raises(json_format.ParseError):
        json_format.Parse(text.replace("taskCount", "taskNumber"), batch_v1.Job.pb(batch_v1.Job()))


@pytest.mark.parametrize("nodes", [1, 3])
def test_sky_task_has_documented_fields_only(run, client, nodes):
    recorded = client("sky")
    run(sky, ["--exp=dense_t5", f"--nodes={nodes}", *COMMANDS["sky"][1]])
    found = yaml.safe_load(written(".yaml").read_text())
    check_fields(found, SKY)
    assert subprocess.run(["bash", "-n"], input=found["run"], text=True).returncode == 0
    assert ("SKYPILOT_NODE_RANK" in found["run"]) == (nodes > 1)
    assert recorded.read_text().split("\n")[:2] == ["jobs", "launch"]


def test_cloud_tpu_script_is_valid_and_gcloud_gets_it(run, client):
    recorded = client("gcloud")
    run(cloud_tpu, ["--exp=dense_t5", *COMMANDS["cloud_tpu"][1], "--spot"])
    script = written(".sh")
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    given = recorded.read_text().split("\n")
    assert given[:4] == ["compute", "tpus", "queued-resources", "create"]
    assert f"--metadata-from-file=startup-script={script}" in given and "--spot" in given
    assert "--runtime-version=v2-alpha-tpuv5-lite" in given
    with pytest.raises(UserError, match="--accelerator_type v9-4"):
        run(cloud_tpu, ["--exp=dense_t5", *COMMANDS["cloud_tpu"][1], "--accelerator_type=v9-4"])


def test_numbers_are_written_as_ranges():
    assert job.numbers([1, 2, 3, 7]) == "1-3,7"
    assert job.numbers([4]) == "4"


def test_containerfile_copies_every_package_and_the_versions():
    root = pathlib.Path(__file__).parents[2]
    text = (root / "Containerfile").read_text()
    for name in ("models", "sparsity", "fff", "experiments", "launch"):
        assert f"COPY {name} {name}\n" in text
    assert "-c constraints.txt" in text
    assert ":latest" not in text and "FROM docker.io/library/python:3.11." in text


def test_every_command_of_this_room_has_a_docstring_with_its_line():
    root = pathlib.Path(__file__).parents[2] / "launch"
    for name in COMMANDS:
        docstring = ast.get_docstring(ast.parse((root / f"{name}.py").read_text()))
        assert docstring and docstring.startswith(f"`python -m launch.{name} ")
