"""Runs the launch command as several processes on the loopback interface."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def start(arguments, cache, devices=1, **environment):
    """Starts one process of the launch command with so many simulated devices."""
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.launch", *arguments],
        cwd=ROOT,
        env=os.environ
        | {
            "KPD_CACHE": str(cache),
            "PYTHONUNBUFFERED": "1",
            "JAX_NUM_CPU_DEVICES": str(devices),
            "JAX_PLATFORMS": "cpu",
        }
        | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_all(arguments, cache, count=2, devices=1, extra=(), **environment):
    """Starts `count` processes of one run; `extra[i]` are further arguments of process i."""
    where = f"127.0.0.1:{free_port()}"
    return [
        start(
            [
                *arguments,
                f"--coordinator={where}",
                f"--num_processes={count}",
                f"--process_id={index}",
                "--join_timeout_s=60",
                *(extra[index] if extra else ()),
            ],
            cache,
            devices,
            **environment,
        )
        for index in range(count)
    ]


def finish(processes, timeout_s=240):
    """(exit code, output) of each process; all are ended where one takes too long."""
    deadline = time.monotonic() + timeout_s
    ended = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 1))
            ended.append((process.returncode, output))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    return ended


def wait_for_step(folder, step, processes, timeout_s=200):
    """Returns when a line of metrics says that this step is reached."""
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and all(process.poll() is None for process in processes):
        if any(line["step"] >= step for line in lines_of(metrics)):
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached: {finish(processes, 5)}")


def lines_of(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
