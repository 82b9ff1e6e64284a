"""The rule of the stable median, real workloads on this device, and the command."""

import itertools
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import calibrate
from experiments.device import Device
from experiments.reference import workloads
from experiments.reference.cost import cost_of, count_kernels
from experiments.reference.measure import is_stable, measure, until_stable
from models.errors import UserError


def test_five_equal_windows_are_enough():
    found = until_stable(itertools.repeat(1.0).__next__)
    assert (found.seconds, found.repeats, found.stable) == (1.0, 5, True)
    assert found.relative_spread == 0


def test_a_noisy_device_is_measured_to_the_end_and_says_so():
    noise = np.random.default_rng(0).uniform(0.7, 1.3, 100)
    found = until_stable(iter(noise).__next__)
    assert found.repeats == 15 and not found.stable
    assert found.relative_spread > 0.1
    assert found.seconds == pytest.approx(np.median(noise[:15]))


def test_a_disturbance_is_outvoted():
    """One slow window in five is not stable yet; in nine it is left off."""
    found = until_stable(iter([1.0, 2.0, *[1.0] * 20]).__next__)
    assert found.stable and found.seconds == 1.0 and 5 < found.repeats < 15


def test_stability_is_a_sign_test():
    # Of nine values one at either end lies outside of the 95 % interval, of eight none.
    assert is_stable([1.0] * 7 + [0.5, 2.0])
    assert not is_stable([1.0] * 6 + [0.5, 2.0])
    assert not is_stable([1.0] * 7 + [2.0, 2.0])


def test_cost_of_a_known_program():
    def program(x, y):
        return jnp.tanh(x @ y)

    cost = cost_of(jax.jit(program).lower(jnp.ones((64, 32)), jnp.ones((32, 16))).compile())
    # Bytes depend on how it is fused, but the arguments and the result are among them.
    assert cost.flops == pytest.approx(2 * 64 * 32 * 16, rel=0.1)
    assert cost.bytes >= 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert 1 <= cost.kernels <= 3


def test_kernels_are_counted_in_the_entry_alone():
    hlo = """HloModule m

%inner (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0)
  ROOT %a = f32[2]{0} add(%p, %p)
}

ENTRY %main (x: f32[2]) -> (f32[2], f32[2]) {
  %x = f32[2]{0} parameter(0), metadata={op_name="x"}
  %c = f32[] constant(1)
  %fusion.1 = f32[2]{0} fusion(%x), kind=kLoop, calls=%inner
  %dot.2 = (f32[2]{0}, f32[2]{0}) custom-call(%x, %fusion.1), custom_call_target="gemm"
  %part = f32[2]{0} get-tuple-element(%dot.2), index=0
  ROOT %out = (f32[2]{0}, f32[2]{0}) tuple(%fusion.1, %part)
}
"""
    assert count_kernels(hlo) == 2


def test_workloads_are_what_they_say(monkeypatch):
    monkeypatch.setattr(workloads, "_PRODUCTS", {"float32": (64, 128)})
    monkeypatch.setattr(workloads, "_PASSES", (2**14, 2**16))
    monkeypatch.setattr(workloads, "_CHAINS", (16, 32))
    monkeypatch.setattr(workloads, "_FUNCTIONS", (2**10,))
    jobs = {job.name: job for job in workloads.fixed_workloads()}
    assert jobs["product_float32_128"].cost.flops == pytest.approx(2 * 128**3, rel=0.05)
    assert jobs["pass_float32_65536"].cost.bytes == pytest.approx(12 * 2**16, rel=0.4)
    assert jobs["function_float32_1024"].cost.functions == 16 * 2**10
    few, many = (jobs[f"chain_float32_{n}"].cost.kernels for n in (16, 32))
    assert many == pytest.approx(2 * few, rel=0.2) and few >= 8


def test_a_workload_is_measured_from_its_trace(monkeypatch):
    monkeypatch.setattr(workloads, "_PRODUCTS", {"float32": (256,)})
    monkeypatch.setattr("experiments.reference.measure._WINDOW_S", 0.01)
    found = measure(next(workloads.fixed_workloads()))
    assert 1e-6 < found.seconds < 1.0 and found.repeats >= 5


def busy(spread):
    from experiments.reference.base import Cost
    from experiments.reference.calibrated import Calibration
    from experiments.reference.convert import KINDS, Workload

    return Calibration(
        name="own",
        device=Device("d", "cpu", 1, 2, "0.10.2"),
        versions={},
        made="",
        rule="",
        workloads={
            kind: Workload(kind, "float32", 1.0, spread, Cost(1, 1, 1, 1)) for kind in KINDS
        },
        programs={},
    )


def test_a_busy_machine_is_refused():
    calibrate.refuse_if_busy(busy(0.05))
    with pytest.raises(UserError, match=r"busy: 4 of 4 spreads are above 10 %, .* has 25 %"):
        calibrate.refuse_if_busy(busy(0.25))


def command(*arguments, folder):
    return subprocess.run(
        [sys.executable, "-m", "experiments.calibrate", *arguments],
        env={"KPD_REFERENCES": str(folder), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--save=a/b"], "--save=a/b: letters, digits"),
        (["--baselines=bert_basline"], "Did you mean bert_baseline?"),
        (["--reference=ntng"], "no workloads, only seconds of its programs"),
        (["now"], "now: not a flag"),
    ],
)
def test_bad_input_ends_with_2(arguments, message, tmp_path):
    done = command(*arguments, folder=tmp_path)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr


def test_list_shows_all_and_names_the_damaged(tmp_path):
    (tmp_path / "broken.json").write_text(json.dumps({"format": 1, "kind": "measured"}))
    done = command("--list", folder=tmp_path)
    assert done.returncode == 0
    assert "here" in done.stdout and "NVIDIA RTX 3090" in done.stdout
    assert "broken           not readable" in done.stdout


@pytest.mark.slow
def test_a_calibration_from_the_command(tmp_path):
    """The fixed workloads alone, on whatever machine this is."""
    done = command("--save=mine", "--baselines=", "--force", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "mine.json").read_text())["workloads"]
    again = command("--save=mine", "--baselines=", folder=tmp_path)
    assert again.returncode == 2 and "give --force to replace it" in again.stderr
    ratios = command("--reference=mine", folder=tmp_path)
    assert ratios.returncode == 0 and "product float32" in ratios.stdout
