"""Runs planned by references: what is charged, what is only reported, and what is refused."""

import dataclasses
import json
import pathlib

import pytest

from experiments.device import Device, this_device
from experiments.reference.base import Cost
from experiments.reference.calibrated import Calibration
from experiments.reference.convert import CHAIN, FUNCTION, KINDS, PASS, PRODUCT, Workload
from experiments.reference.store import save_own, save_reference, user_folder
from experiments.run import run_experiment
from experiments.run_folder import RunFolder
from models.errors import UserError


@pytest.fixture(autouse=True)
def references(tmp_path, monkeypatch):
    monkeypatch.setenv("KPD_REFERENCES", str(tmp_path / "references"))


def run(experiment, workdir, reference="here", account="rst"):
    run_experiment(experiment, str(workdir), reference, False, account)
    folder = RunFolder(pathlib.Path(workdir), experiment).path
    return folder, *(
        json.loads((folder / name).read_text()) for name in ("config.json", "summary.json")
    )


def calibration(name, device, speeds):
    """Of a device with these multiples of the speeds of a slow one."""
    workloads = {
        "product": (PRODUCT, Cost(1e9, 1e5, 1), 0.1),
        "pass": (PASS, Cost(1e5, 1e8, 1), 0.1),
        "chain": (CHAIN, Cost(1e2, 1e2, 64), 1e-4),
        "function": (FUNCTION, Cost(1e4, 1e4, 1, 1e5), 1e-2),
    }
    return Calibration(
        name=name,
        device=device,
        versions={"python": "3.11", "jax": device.jax, "jaxlib": device.jax},
        made="2026-01-01T00:00:00+00:00",
        rule="none",
        workloads={
            one: Workload(kind, "float32", seconds / speeds[kind], 0.01, cost)
            for one, (kind, cost, seconds) in workloads.items()
        },
        programs={},
    )


def test_evaluation_and_checkpoints_are_reported_and_not_charged(tiny, tmp_path):
    plain = tiny("dense_t5", budget="0.3s", settings=["train.num_evaluations=1"])
    busy = tiny(
        "dense_t5",
        budget="0.3s",
        settings=["train.num_evaluations=8", "train.num_checkpoints=8", "train.log_every_steps=1"],
    )
    _, plain_config, plain_summary = run(plain, tmp_path / "runs")
    _, busy_config, busy_summary = run(busy, tmp_path / "runs")
    assert busy_config["plan"] == plain_config["plan"]
    assert busy_summary["rst_planned_s"] == plain_summary["rst_planned_s"] <= 0.3 + 1e-9
    for summary in (plain_summary, busy_summary):
        seconds = summary["seconds"]
        assert sum(seconds.values()) == pytest.approx(summary["wall_s"])
        assert min(seconds[name] for name in ("compile", "evaluate", "checkpoint", "train")) > 0


def test_wall_account_counts_this_device_and_says_so(tiny, tmp_path):
    experiment = tiny("dense_t5", budget="8steps")
    folder, config, summary = run(experiment, tmp_path / "runs", account="wall")
    assert config["account"] == summary["account"] == "wall"
    assert summary["ratio"] == 1.0 and summary["reference"] == "here"
    # Going on under another account would plan other steps.
    (folder / "summary.json").unlink()
    with pytest.raises(UserError, match=r"was begun with --account=wall"):
        run(experiment, tmp_path / "runs")


def test_a_faster_reference_grants_more_steps(tiny, tmp_path):
    """Ten times as fast in everything: ten times the steps of the same seconds."""
    here = this_device()
    save_own(calibration("own", here, dict.fromkeys(KINDS, 1.0)))
    fast = Device("fast", "gpu", 1, 1, "0.0.1")
    save_reference(calibration("fast", fast, dict.fromkeys(KINDS, 10.0)), user_folder())
    experiment = tiny("dense_t5", budget="0.05s")
    _, config, summary = run(experiment, tmp_path / "runs", "fast")
    program = config["plan"]["stages"][0]["programs"]["train"]
    measured = config["plan"]["from"]["seconds"]
    assert program["seconds"] == pytest.approx(measured / 10)
    assert program["low"] < program["seconds"] < program["high"]
    assert summary["steps"] == int(0.05 / program["seconds"] * (1 + 1e-12))
    assert summary["ratio"] == pytest.approx(0.1) and summary["reference"] == "fast"
    low, high = summary["rst_interval_s"]
    assert low < summary["rst_planned_s"] < high
    assert "converted from" in summary["rst_how"][0]
    assert "calibrated with jax 0.0.1" in config["reference"]["warnings"][0]


def test_a_published_reference_refuses_other_programs(tiny, tmp_path):
    with pytest.raises(UserError, match=r"--reference ntng: no figure for t5 train, 1 layers"):
        run(tiny("dense_t5", budget="0.05s"), tmp_path / "runs", "ntng")
    with pytest.raises(UserError, match=r"Did you mean ntng\?"):
        run(tiny("dense_t5", budget="0.05s"), tmp_path / "runs", "ntgn")


def test_without_a_calibration_of_this_device_nothing_is_converted(tiny, tmp_path):
    fast = calibration("fast", Device("fast", "gpu", 1, 1, "0.0.1"), dict.fromkeys(KINDS, 2.0))
    save_reference(dataclasses.replace(fast, name="fast"), user_folder())
    with pytest.raises(UserError, match=r"Run python -m experiments.calibrate once"):
        run(tiny("dense_t5", budget="0.05s"), tmp_path / "runs", "fast")
