"""`python -m experiments.calibrate`: measures this device, and keeps it as a reference."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from absl import flags

from experiments.launch import run_main
from models.allocator import keep_freed_memory
from models.errors import UserError, did_you_mean

if TYPE_CHECKING:  # commands start quickly: jax comes after the flags are read
    from experiments.device import Device
    from experiments.display import Display
    from experiments.reference.calibrated import Calibration
    from experiments.reference.workloads import Job

_SAVE = flags.DEFINE_string("save", None, "Keeps the calibration as a reference of this name.")
_SAVE_TO = flags.DEFINE_string("save_to", None, "Folder of --save; the user's own by default.")
_BASELINES = flags.DEFINE_list("baselines", None, "Baselines to measure; all by default.")
# experiments.launch has these three: --list shows every reference, --reference=NAME the ratios of
# this device to one, and --force keeps a calibration of a busy machine, or over an older one.
_LIST, _REFERENCE, _FORCE = (flags.FLAGS[name] for name in ("list", "reference", "force"))


def calibrate(name: str, baselines: Sequence[str], display: "Display") -> "Calibration":
    """Measures the fixed workloads and the programs of the baselines named."""
    from experiments.device import this_device
    from experiments.reference.calibrated import Calibration, MeasuredProgram
    from experiments.reference.convert import Workload
    from experiments.reference.measure import RULE, measure

    device = this_device()
    workloads, programs = {}, {}
    for job in _jobs(baselines):
        display.start(f"measuring {job.name}", None)
        found = measure(job)
        display.stop()
        unstable = "" if found.stable else ", median not stable"
        display.tell(
            f"{job.name:<24} {1e3 * found.seconds:10.4f} ms  ± {100 * found.relative_spread:4.1f} %"
            f"  {found.repeats} windows{unstable}"
        )
        if job.program is None:
            workloads[job.name] = Workload(
                job.kind, job.dtype, found.seconds, found.relative_spread, job.cost
            )
        else:
            programs[job.program.key] = MeasuredProgram(
                job.program, found.seconds, found.relative_spread, job.cost
            )
    return Calibration(
        name=name,
        device=device,
        versions=_versions(),
        made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        rule=RULE,
        workloads=workloads,
        programs=programs,
    )


def _jobs(baselines: Sequence[str]) -> Iterator["Job"]:
    from experiments.reference.workloads import baseline_programs, fixed_workloads

    yield from fixed_workloads()
    for name in baselines:
        yield from baseline_programs(name)


def _versions() -> dict[str, str]:
    import jax

    versions = {"python": platform.python_version(), "system": platform.platform()}
    for package in ("kpd", "jax", "jaxlib"):
        versions[package] = importlib.metadata.version(package)
    versions["runtime"] = " ".join(jax.devices()[0].client.platform_version.split())
    driver = pathlib.Path("/proc/driver/nvidia/version")
    if driver.exists():
        versions["driver"] = driver.read_text().splitlines()[0]
    return versions


def print_references() -> None:
    """One line for each reference: its name, what it is, and where it is kept."""
    from experiments.reference.published import Published
    from experiments.reference.store import HERE, read_reference, stored_references

    print(f"{HERE:<16} this device, ratio 1")
    for name, path in stored_references().items():
        try:
            found = read_reference(path)
        except UserError as error:
            print(f"{name:<16} not readable: {error}")
            continue
        if isinstance(found, Published):
            devices = ", ".join(dict.fromkeys(one.device for one in found.series))
            print(f"{name:<16} published: {devices}; {found.source}  ({path})")
        else:
            device = found.device
            print(
                f"{name:<16} measured {found.made[:10]}: {device.kind}, {device.processors} "
                f"processors, jax {device.jax}, {len(found.programs)} programs  ({path})"
            )


def print_ratios(name: str, device: "Device") -> None:
    """Ratio by kind of work of this device's calibration to a reference."""
    from experiments.reference.convert import ratios
    from experiments.reference.store import find_reference, own_calibration

    own, reference = own_calibration(device), find_reference(name, device=device)
    there = getattr(reference, "there", None)
    if there is None:
        raise UserError(f"--reference={name}: it has no workloads, only seconds of its programs.")
    if own is None:
        raise UserError(
            f"this device ({device.kind}) is not calibrated; run python -m experiments.calibrate."
        )
    for warning in reference.warnings:
        print(warning)
    print(f"seconds of {name} ({there.device.kind}) over seconds here ({device.kind}):")
    for dtype in ("float32", "bfloat16"):
        for kind, ratio in ratios(own.workloads, there.workloads, dtype).items():
            if dtype == "float32" or kind == "product":
                print(
                    f"  {kind} {dtype:<9} {ratio.middle:.3g}  "
                    f"(over sizes and spreads {ratio.low:.3g} to {ratio.high:.3g})"
                )


def refuse_if_busy(calibration: "Calibration") -> None:
    """Raises UserError where spreads say that something else ran."""
    from experiments.reference.calibrated import MAX_SPREAD

    busy, spreads = calibration.too_busy(), calibration.spreads()
    if busy:
        worst = max(busy, key=lambda name: spreads[name])
        raise UserError(
            f"the machine was busy: {len(busy)} of {len(spreads)} spreads are above "
            f"{100 * MAX_SPREAD:.0f} %, {worst} has {100 * spreads[worst]:.0f} %. Nothing is kept; "
            "repeat it on a quiet machine, or give --force."
        )


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; --save=NAME keeps a reference.")
    if _LIST.value:
        print_references()
        return 0
    # Before jax starts its threads, as in a run.
    keep_freed_memory()
    from experiments.device import this_device
    from experiments.display import Display
    from experiments.program import enable_compilation_cache
    from experiments.reference.store import HERE, check_name, save_own, save_reference, user_folder
    from experiments.reference.workloads import BASELINES

    if (reference := str(_REFERENCE.value)) != HERE:
        print_ratios(reference, this_device())
        return 0
    baselines = BASELINES if _BASELINES.value is None else [one for one in _BASELINES.value if one]
    for name in baselines:
        if name not in BASELINES:
            raise UserError(
                f"--baselines={name}: not one of {', '.join(BASELINES)}."
                f"{did_you_mean(name, BASELINES)}"
            )
    folder = pathlib.Path(_SAVE_TO.value) if _SAVE_TO.value else user_folder()
    if _SAVE.value is not None:
        check_name(_SAVE.value)
        path = folder / f"{_SAVE.value}.json"
        if path.exists() and not _FORCE.value:
            raise UserError(f"--save={_SAVE.value}: {path} is there; give --force to replace it.")
    enable_compilation_cache()
    load = os.getloadavg()[0]
    with Display() as display:
        if load > 0.5:
            display.tell(f"Load of this machine is {load:.1f}: something else runs beside this.")
        calibration = calibrate(_SAVE.value or "own", baselines, display)
        if not _FORCE.value:
            refuse_if_busy(calibration)
        calibration.check("this calibration")
        display.tell(f"This device: {save_own(calibration)}")
        if _SAVE.value is not None:
            display.tell(f"Reference {_SAVE.value}: {save_reference(calibration, folder)}")
    return 0


if __name__ == "__main__":
    run_main(main, ("list", "reference", "force"))
