"""Calibrations as files and as references: what is kept, used, warned of and refused."""

import dataclasses
import json

import pytest

from experiments.device import Device
from experiments.reference.base import Anchor, Cost, ProgramId, ThisDevice, program_key
from experiments.reference.calibrated import Calibrated, Calibration, MeasuredProgram
from experiments.reference.convert import CHAIN, FUNCTION, PASS, PRODUCT, Workload
from experiments.reference.store import (
    find_reference,
    own_calibration,
    read_reference,
    save_own,
    save_reference,
    user_folder,
)
from models.errors import UserError

SLOW = Device("slow", "cpu", 1, 2, "0.10.2")
FAST = Device("fast", "gpu", 1, 16, "0.10.2")
MIXED = Cost(1e9, 1e8, 100)


@dataclasses.dataclass
class Timed:
    seconds: float
    relative_spread: float = 0.01


def program(layers=4, key="k4", kind="train"):
    return ProgramId("bert", kind, layers, 16, key, {"compute_dtype": "float32"})


def calibration(device=SLOW, speed=1.0, name="slow", spread=0.01, programs=()):
    def workload(kind, cost, seconds):
        return Workload(kind, "float32", seconds / speed, spread, cost)

    return Calibration(
        name=name,
        device=device,
        versions={"python": "3.11", "jax": device.jax, "jaxlib": device.jax},
        made="2026-01-01T00:00:00+00:00",
        rule="five windows",
        workloads={
            "product_1": workload(PRODUCT, Cost(1e10, 1e6, 1), 0.1),
            "product_2": workload(PRODUCT, Cost(8e10, 4e6, 1), 0.8),
            "pass_1": workload(PASS, Cost(1e6, 1e9, 1), 0.05),
            "chain_1": workload(CHAIN, Cost(1e3, 1e3, 64), 64e-6),
            "function_1": workload(FUNCTION, Cost(1e6, 1e6, 1, 1e6), 1e-3),
        },
        programs={
            one.key: MeasuredProgram(one, seconds, spread, MIXED) for one, seconds in programs
        },
    )


@pytest.fixture
def references(tmp_path, monkeypatch):
    monkeypatch.setenv("KPD_REFERENCES", str(tmp_path / "references"))
    return tmp_path / "references"


def test_a_measured_program_uses_its_own_figure():
    fast = calibration(FAST, 10.0, "fast", programs=[(program(), 0.004)])
    reference = Calibrated(fast, calibration(), SLOW)
    found = reference.convert(program(), Timed(5.0), MIXED)
    assert found.seconds == 0.004 and "measured on fast" in found.how
    # Without a calibration of this device, too.
    assert Calibrated(fast, None, SLOW).convert(program(), Timed(5.0), MIXED).seconds == 0.004


def test_another_program_is_converted():
    fast = calibration(FAST, 10.0, "fast", programs=[(program(), 0.004)])
    reference = Calibrated(fast, calibration(), SLOW)
    found = reference.convert(program(8, "k8"), Timed(0.02), MIXED)
    assert found.seconds == pytest.approx(0.002) and found.how.startswith("converted from 0.02 s")
    with pytest.raises(UserError, match=r"this device \(slow\) is not calibrated"):
        Calibrated(fast, None, SLOW).convert(program(8, "k8"), Timed(0.02), MIXED)


def test_a_method_differs_from_its_measured_baseline_by_their_ratio_alone():
    """Not by the noise between the two times that the baseline was measured at."""
    reference = Calibrated(calibration(programs=[(program(), 0.100)]), None, SLOW)
    plain = Anchor(program(), Timed(0.103), MIXED)
    baseline = reference.convert(program(), plain.here, MIXED, lambda: plain)
    same, dearer = (
        reference.convert(program(key="other"), Timed(seconds), MIXED, lambda: plain)
        for seconds in (0.103, 0.103 * 1.05)
    )
    assert baseline.seconds == 0.100
    assert same.seconds == pytest.approx(0.100)
    assert dearer.seconds == pytest.approx(0.105)
    assert dearer.low <= 0.105 <= dearer.high and "× 0.97" in dearer.how
    # Without a figure of the plain program nothing is anchored.
    unknown = Anchor(program(key="unknown"), Timed(0.103), MIXED)
    found = reference.convert(program(key="other"), Timed(0.103), MIXED, lambda: unknown)
    assert found.seconds == pytest.approx(0.103)


def test_a_device_against_itself_has_ratio_one():
    """Whatever a second calibration of the same device came to."""
    reference = Calibrated(calibration(), calibration(speed=1.2), SLOW)
    assert reference.convert(program(8, "k8"), Timed(0.02), MIXED).seconds == pytest.approx(0.02)


def test_another_jax_and_a_busy_machine_are_warned_of():
    newer = dataclasses.replace(FAST, jax="0.11.0")
    reference = Calibrated(calibration(newer, 10.0, "fast", spread=0.3), calibration(), SLOW)
    assert "calibrated with jax 0.11.0, this is 0.10.2" in reference.warnings[0]
    assert "made on a busy machine: spread of product_1 30 %" in reference.warnings[1]
    assert reference.facts()["warnings"] == list(reference.warnings)
    assert not Calibrated(calibration(FAST, 10.0), calibration(), SLOW).warnings


def test_what_is_saved_is_read_back(references):
    saved = calibration(programs=[(program(), 0.1), (program(8, "k8"), 0.2)])
    path = save_reference(saved, user_folder())
    assert path == references / "slow.json"
    assert read_reference(path) == saved
    save_own(saved)
    assert own_calibration(SLOW) == saved and own_calibration(FAST) is None
    found = find_reference("slow", device=FAST)
    assert isinstance(found, Calibrated) and found.name == "slow"


def test_unknown_names_are_met_with_the_nearest(references):
    save_reference(calibration(), user_folder())
    with pytest.raises(UserError, match=r"--reference slo: no such reference. Did you mean slow\?"):
        find_reference("slo")
    with pytest.raises(UserError, match=r"Did you mean ntng\?"):
        find_reference("ngtn")


def test_wall_account_has_no_other_reference(references):
    assert find_reference("here", "wall").facts()["account"] == "wall"
    with pytest.raises(UserError, match="leave out --reference=ntng"):
        find_reference("ntng", "wall")


def test_a_run_keeps_the_reference_it_was_begun_with(tmp_path):
    begun = ThisDevice().facts()
    ThisDevice().check_same(begun, tmp_path)
    with pytest.raises(UserError, match="was begun with --account=rst"):
        ThisDevice("wall").check_same(begun, tmp_path)
    with pytest.raises(UserError, match=r"--reference=slow: .* was begun with --reference=here"):
        Calibrated(calibration(), None, SLOW).check_same(begun, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["workloads"]["pass_1"].update(seconds=0.0), r"pass_1: 0.0 s is not a time"),
        (lambda c: c["workloads"]["pass_1"].update(relative_spread=-1), r"-1 is not a spread"),
        (lambda c: c["workloads"]["product_2"].update(seconds=0.01), r"product_2: 0.01 s for more"),
        (
            lambda c: c["programs"]["k8"].update(seconds=0.09),
            r"bert train, 8 layers.* 0.09 s for more",
        ),
        (lambda c: c["versions"].pop("jaxlib"), r"versions of jaxlib are not stated"),
        (lambda c: c["workloads"].pop("chain_1"), r"no workload of kind chain"),
        (lambda c: c.pop("device"), r"damaged calibration \(KeyError: 'device'\)"),
        (lambda c: c.update(programs=[1]), r"damaged calibration"),
        (lambda c: c.update(format=2), r"not a reference table of this version"),
        (lambda c: c.update(kind="guessed"), r"not a reference table of this version"),
    ],
)
def test_damage_is_named(references, change, message):
    saved = calibration(programs=[(program(), 0.1), (program(8, "k8"), 0.2)])
    path = save_reference(saved, user_folder())
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=message):
        find_reference("slow", device=FAST)


def test_half_a_file_is_named(references):
    path = save_reference(calibration(), user_folder())
    path.write_text(path.read_text()[:100])
    with pytest.raises(UserError, match="not valid JSON"):
        find_reference("slow", device=FAST)


def test_keys_do_not_change_with_new_empty_fields():
    old = {"model": {"layers": 4}}
    assert program_key(old, "train") == program_key({**old, "method": None}, "train")
    assert program_key(old, "train") != program_key(old, "forward")
    assert program_key(old, "train") != program_key({"model": {"layers": 5}}, "train")
