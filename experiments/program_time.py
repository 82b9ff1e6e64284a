"""Seconds per compiled program, measured once for a device and kept in the working folder."""

import contextlib
import dataclasses
import datetime
import fcntl
import pathlib
from collections.abc import Iterator
from typing import Any

import jax

from experiments.config import Experiment
from experiments.data.prefetch import Supplier
from experiments.device import Device
from experiments.distributed import from_first, is_first
from experiments.program import Program, compile_program
from experiments.program_key import program_description, program_key
from experiments.run_folder import read_json, write_json
from experiments.stages import GROW, Growth
from experiments.timing import (
    Median,
    compare_calls,
    compare_programs,
    interleaved,
    make_call,
    median,
    trace_program,
)

# Calls from which the seconds of growing a state are taken.
_GROWTHS = 7


@dataclasses.dataclass(frozen=True)
class ProgramTime:
    """Seconds of one step of a program on this device, and how they were found."""

    seconds: float
    # Relative uncertainty: half the interquartile range of single steps over their median.
    relative_spread: float
    how: str


class DeviceProfile:
    """`<workdir>/device_profiles/<device>.json`: the times that every run there is planned from."""

    def __init__(self, workdir: pathlib.Path, device: Device):
        self._path = workdir / "device_profiles" / f"{device.key}.json"
        self._device = device

    def get(self, experiment: Experiment, kind: str = "train") -> ProgramTime | None:
        entry = self._read()["programs"].get(program_key(experiment, kind))
        return entry and ProgramTime(entry["seconds"], entry["relative_spread"], entry["how"])

    def put(self, experiment: Experiment, time_: ProgramTime, kind: str = "train") -> None:
        if not is_first():
            return
        profile = self._read()
        profile["programs"][program_key(experiment, kind)] = {
            **dataclasses.asdict(time_),
            "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "program": program_description(experiment, kind),
        }
        write_json(self._path, profile)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lets one process at a time measure: two at once would slow each other down.

        Processes of one run measure together; the first of them holds the lock for all.
        """
        if not is_first():
            yield
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path.with_suffix(".lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        stored = read_json(self._path)
        return stored or {"device": dataclasses.asdict(self._device), "programs": {}}


def base_of(experiment: Experiment) -> Experiment:
    """The plain experiment that an experiment's programs are timed against.

    Without pruning and method, at full depth, and with AdamW in place of its challengers: separate
    measurements differ by more than most of these cost.
    """
    optimizer = experiment.optimizer
    if optimizer.name != "adafactor":
        optimizer = dataclasses.replace(optimizer, name="adamw", sophia=None)
    return dataclasses.replace(experiment, pruning=None, method=None, optimizer=optimizer)


class ProgramTimes:
    """Seconds of one call of each of an experiment's programs, as measured before or now."""

    def __init__(
        self, experiment: Experiment, batches: Supplier, device: Device, workdir: pathlib.Path
    ):
        self._base = base_of(experiment)
        self._batches = batches
        self._profile = DeviceProfile(workdir, device)
        self._base_program: Program | None = None

    def seconds(self, program: Program, kind: str, progress: float = 0.0) -> ProgramTime:
        """Times a side program of this kind, or the training step told `progress`."""
        experiment = program.experiment
        with self._profile.locked():
            known = from_first(self._profile.get(experiment, kind))
            if known is None:
                known = from_first(self._measure(program, kind, progress))
                self._profile.put(experiment, known, kind)
        return known

    def growth(self, growth: Growth) -> ProgramTime:
        """Times the program that leads from one stage to the next.

        It runs once, in about the time of a step: what the machine drifts between this and the
        time of the plain program, which others are compared with in turns, does not matter.
        """
        experiment = growth.after.experiment
        kind = f"{GROW} from {program_key(growth.before.experiment)}"
        with self._profile.locked():
            known = from_first(self._profile.get(experiment, kind))
            if known is None:
                known = from_first(time_growth(growth))
                self._profile.put(experiment, known, kind)
        return known

    def base(self) -> tuple[Program, ProgramTime]:
        """The plain program that others are timed against, with its time here."""
        with self._profile.locked():
            return self._time_base()

    def _time_base(self) -> tuple[Program, ProgramTime]:
        if self._base_program is None:
            self._base_program = compile_program(self._base)
        base = from_first(self._profile.get(self._base))
        if base is None:
            base = from_first(measure_program(self._base_program, self._base, self._batches))
            self._profile.put(self._base, base)
        return self._base_program, base

    def _measure(self, program: Program, kind: str, progress: float) -> ProgramTime:
        experiment = program.experiment
        if experiment == self._base:
            self._base_program = program
        base_program, base = self._time_base()
        if program_key(experiment, kind) == program_key(self._base):
            return base
        if experiment.pruning is not None and kind == "train":
            ratio, update = compare_programs(
                self._base, base_program, experiment, program, self._batches
            )
            window = experiment.pruning.end_fraction - experiment.pruning.start_fraction
            return _charge(base, ratio, update, window / experiment.pruning.update_every_steps)
        ratio = compare_calls(
            make_call(base_program, "train", 0.0, self._batches),
            make_call(program, kind, progress, self._batches),
            base.seconds,
        )
        return from_ratio(base, ratio)


def measure_program(program: Program, experiment: Experiment, batches: Supplier) -> ProgramTime:
    """Times a compiled program by an XProf trace of a warm window of steps."""
    timed = trace_program(program, experiment, batches)
    how = timed.note if timed.xprof is not None else f"wall clock over {timed.steps} steps"
    return ProgramTime(timed.best, timed.relative_spread or 0.0, how)


def from_ratio(base: ProgramTime, ratio: Median) -> ProgramTime:
    """Seconds of a program as a multiple of the plain one's, 1 where the interval holds it."""
    charged = _or_equal(ratio, 1.0)
    return ProgramTime(
        seconds=base.seconds * charged,
        relative_spread=(ratio.high - ratio.low) / 2 / ratio.median,
        how=(
            f"{charged:.4f} × the plain program (interleaved, 95 % interval "
            f"{ratio.low:.3f} to {ratio.high:.3f})"
        ),
    )


def _or_equal(found: Median, plain: float) -> float:
    """The median, or what it would be of equal programs where that lies in its interval."""
    return plain if found.low <= plain <= found.high else found.median


def time_growth(growth: Growth) -> ProgramTime:
    """Times the program that leads from one stage to the next, at the former's first state."""
    state = jax.block_until_ready(growth.before.init_state(0))

    def call(index: int) -> Any:
        return growth.run(state)

    (seconds,) = interleaved([(call, 1)], _GROWTHS)
    found = median(seconds)
    return ProgramTime(
        found.median, (found.high - found.low) / 2 / found.median, f"median of {_GROWTHS} calls"
    )


def _charge(
    base: ProgramTime, ratio: Median, extra: Median, updates_per_step: float
) -> ProgramTime:
    """Seconds of a program as a multiple of those of its base.

    Separate measurements differ by more than what pruning costs, and runs to be compared would
    then differ in steps by noise. So the ratio of paired steps counts, and where its 95 % interval
    holds 1 the program is charged like its base; likewise for what mask updates take.
    """
    charged, update = _or_equal(ratio, 1.0), max(_or_equal(extra, 0.0), 0.0)
    return ProgramTime(
        seconds=base.seconds * (charged + update * updates_per_step),
        relative_spread=(ratio.high - ratio.low) / 2,
        how=(
            f"{charged:.4f} × its dense program (interleaved pairs, 95 % interval "
            f"{ratio.low:.3f} to {ratio.high:.3f}), and {update:.3f} dense steps for each "
            "mask update"
        ),
    )
