"""A real Slurm, where it can be started: two tasks of one run, preemption, a study as an array."""

import json
import pathlib
import subprocess
import sys
import time

import pytest

from tests.launch import slurm_cluster

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory, cache):
    if why := slurm_cluster.obstacle():
        pytest.skip(why)
    with slurm_cluster.cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found | {
            "KPD_CACHE": str(cache),
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "PYTHONUNBUFFERED": "1",
        }


@pytest.fixture
def submit(environment, tiny_settings, tmp_path):
    """Submits a run by the command; returns Slurm's number of the job."""

    def call(*arguments, but=()):
        given = [one.removeprefix("--set=").partition("=")[0] for one in arguments]
        left_out = ("mesh", "data.files", *(path for path in given if "." in path), *but)
        settings = [one for one in tiny_settings if not one.startswith(left_out)]
        # A glob would need quoting; the file itself does not.
        files = next(one for one in tiny_settings if one.startswith("data.files"))
        settings.append(files.replace("*.txt", "topics.txt"))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "launch.slurm",
                f"--workdir={tmp_path / 'runs'}",
                f"--python={sys.executable}",
                "--time=10",
                *arguments,
                *(f"--set={setting}" for setting in settings),
            ],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    return call


def logs(tmp_path):
    return "\n".join(path.read_text() for path in (tmp_path / "runs" / "slurm").glob("*.log"))


def wait(until, tmp_path, timeout_s=230):
    deadline = time.monotonic() + timeout_s
    while not until():
        assert time.monotonic() < deadline, logs(tmp_path)[-3000:]
        time.sleep(0.2)


def summaries(tmp_path):
    return [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("summary.json")]


def test_two_tasks_are_one_run_and_a_preempted_job_goes_on(submit, environment, tmp_path):
    job = submit(
        "--exp=sparse_t5_75",
        "--budget=60steps",
        "--tasks_per_node=2",
        "--set=train.log_every_steps=1",
        "--set=train.num_checkpoints=6",
    )
    metrics = "runs/sparse_t5_75/*/metrics.jsonl"

    def slurm(*command):
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout

    def has_begun():
        return any(path.read_text().count("\n") > 10 for path in tmp_path.glob(metrics))

    wait(has_begun, tmp_path)
    # What Slurm does to the tasks of a job that it preempts, or whose time is nearly up.
    subprocess.run(["scancel", "--signal=TERM", job], env=environment, check=True)
    wait(lambda: "Restarts=1" in slurm("scontrol", "show", "job", job), tmp_path)
    wait(lambda: "idle" in slurm("sinfo", "--noheader", "--format=%T"), tmp_path)
    # Slurm would hold a job that was queued again for two minutes. It tells the new start from the
    # killed one by whole seconds, and drops a job that starts again in the second of its end.
    slurm("scontrol", "update", f"JobId={job}", "StartTime=now+3")
    wait(lambda: summaries(tmp_path), tmp_path)
    (summary,) = summaries(tmp_path)
    assert summary["status"] == "finished" and summary["steps"] == 60
    assert summary["device"]["count"] == 2
    text = logs(tmp_path)
    assert "Stopped after step" in text and "Going on after step" in text


def test_a_study_is_an_array(submit, environment, tmp_path):
    # What the study itself varies stays.
    submit("--exp=study_sparse_t5", "--points=1-2", "--concurrent=1", but=("model.",))
    wait(lambda: len(summaries(tmp_path)) == 2, tmp_path)
    assert {summary["status"] for summary in summaries(tmp_path)} == {"finished"}
    assert len({summary["exp"] for summary in summaries(tmp_path)}) == 2
