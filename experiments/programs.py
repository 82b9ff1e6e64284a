"""Seconds per compiled program, measured once for a device and kept in the working folder."""

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from experiments.config import Experiment, to_json
from experiments.data.batches import Batches
from experiments.device import Device
from experiments.program import Program, compile_program
from experiments.run_folder import read_json, write_json
from experiments.window import StepTime, time_steps

# A program's time is taken from about this many seconds of steps, within these numbers of steps.
_MEASURE_S = 3.0
_MEASURE_STEPS = (6, 60)
_WARMUP_STEPS = 3
# Pairs of single steps by which a program is compared with the one it is built on.
_PAIRS = 15

# Batches that measurements take turns with.
_DRAWN_BATCHES = 4

# (state, index, update_masks) → state: one step, which also chooses masks anew where asked to.
RunStep = Callable[[Any, int, bool], Any]


@dataclasses.dataclass(frozen=True)
class ProgramTime:
    """Seconds of one step of a program on this device, and how they were found."""

    seconds: float
    # Relative uncertainty: half the interquartile range of single steps over their median.
    relative_spread: float
    how: str


def program_description(experiment: Experiment) -> dict[str, Any]:
    """What decides the program that is compiled, and nothing that leaves its cost as it is.

    Learning rates, seeds, budgets and the degree of sparsity are left out, so that runs which
    differ only in these are planned from the same seconds.
    """
    model = to_json(experiment.model)
    data, optimizer, pruning = experiment.data, experiment.optimizer, experiment.pruning
    return {
        "model": model,
        "lengths": [data.objective, data.inputs_length, data.targets_length],
        "batch": [experiment.train.batch_size, experiment.train.microbatches],
        "optimizer": [
            optimizer.name,
            optimizer.factored,
            optimizer.scale_by_rms,
            optimizer.beta1 > 0,
            optimizer.clip_norm > 0,
            optimizer.weight_decay > 0,
        ],
        "pruning": pruning and [pruning.rule, pruning.pattern, pruning.distribution],
    }


def program_key(experiment: Experiment) -> str:
    """Twelve hex digits that are equal for experiments with the same program."""
    text = json.dumps(program_description(experiment), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class DeviceProfile:
    """`<workdir>/device_profiles/<device>.json`: the times that every run there is planned from."""

    def __init__(self, workdir: pathlib.Path, device: Device):
        self._path = workdir / "device_profiles" / f"{device.key}.json"
        self._device = device

    def get(self, experiment: Experiment) -> ProgramTime | None:
        entry = self._read()["programs"].get(program_key(experiment))
        return entry and ProgramTime(entry["seconds"], entry["relative_spread"], entry["how"])

    def put(self, experiment: Experiment, time_: ProgramTime) -> None:
        profile = self._read()
        profile["programs"][program_key(experiment)] = {
            **dataclasses.asdict(time_),
            "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "program": program_description(experiment),
        }
        write_json(self._path, profile)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lets one process at a time measure: two at once would slow each other down."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path.with_suffix(".lock"), "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        stored = read_json(self._path)
        return stored or {"device": dataclasses.asdict(self._device), "programs": {}}


def seconds_per_step(
    experiment: Experiment,
    program: Program,
    batches: Batches,
    device: Device,
    workdir: pathlib.Path,
) -> ProgramTime:
    """What one step of the experiment takes here: as measured before, or measured now and kept."""
    profile = DeviceProfile(workdir, device)
    with profile.locked():
        if known := profile.get(experiment):
            return known
        run_step = _run_step(program, experiment, batches)
        if experiment.pruning is None:
            _, measured = measure_program(run_step, program.init_state(0))
        else:
            base = dataclasses.replace(experiment, pruning=None)
            base_program = compile_program(base)
            base_step = _run_step(base_program, base, batches)
            base_state, base_time = base_program.init_state(0), profile.get(base)
            if base_time is None:
                base_state, base_time = measure_program(base_step, base_state)
                profile.put(base, base_time)
            window = experiment.pruning.end_fraction - experiment.pruning.start_fraction
            measured = measure_against(
                base_time,
                base_step,
                base_state,
                run_step,
                program.init_state(0),
                updates_per_step=window / experiment.pruning.update_every_steps,
            )
        profile.put(experiment, measured)
        return measured


def _run_step(program: Program, experiment: Experiment, batches: Batches) -> RunStep:
    drawn = [batches.batch(experiment.seed, index) for index in range(_DRAWN_BATCHES)]

    def run_step(state: Any, index: int, update_masks: bool) -> Any:
        # Before the pruning window no mask is updated; crossing its end always updates them.
        progress = (np.float32(0), np.float32(update_masks))
        return program.train_step(state, drawn[index % _DRAWN_BATCHES], *progress)[0]

    return run_step


def measure_program(run_step: RunStep, state: Any) -> tuple[Any, ProgramTime]:
    """Times a compiled program by an XProf trace of a warm window; returns the state too."""
    state = jax.block_until_ready(run_step(state, 0, False))
    begun = time.perf_counter()
    state = jax.block_until_ready(run_step(state, 1, False))
    once = time.perf_counter() - begun
    low, high = _MEASURE_STEPS
    steps = min(max(math.ceil(_MEASURE_S / once), low), high)
    with tempfile.TemporaryDirectory(prefix="kpd-trace-") as folder:
        state, timed = time_steps(
            lambda state, index: run_step(state, index, False),
            state,
            steps,
            _WARMUP_STEPS,
            pathlib.Path(folder),
        )
    return state, _program_time(timed)


def _program_time(timed: StepTime) -> ProgramTime:
    how = timed.note if timed.xprof is not None else f"wall clock over {timed.steps} steps"
    return ProgramTime(timed.best, timed.relative_spread or 0.0, how)


def measure_against(
    base: ProgramTime,
    base_step: RunStep,
    base_state: Any,
    step: RunStep,
    state: Any,
    updates_per_step: float,
) -> ProgramTime:
    """Times a program as a multiple of the one it is built on, in interleaved pairs of steps.

    Separate measurements differ by more than what pruning costs, and runs to be compared would
    then differ in steps by noise. So the ratio of paired steps counts, and where its 95 % interval
    holds 1 the program is charged like its base. Steps that update masks are timed apart and
    spread over `updates_per_step`.
    """
    for _ in range(2):
        base_state = base_step(base_state, 0, False)
        state = step(state, 0, False)
    state = step(state, 0, True)
    jax.block_until_ready((base_state, state))
    ratios, extras = [], []
    for index in range(_PAIRS):
        base_state, base_s = _timed(base_step, base_state, index, False)
        state, step_s = _timed(step, state, index, False)
        state, update_s = _timed(step, state, index, True)
        ratios.append(step_s / base_s)
        extras.append((update_s - step_s) / base_s)
    low, high = median_interval(ratios)
    ratio = 1.0 if low <= 1.0 <= high else statistics.median(ratios)
    extra_low, extra_high = median_interval(extras)
    extra = 0.0 if extra_low <= 0.0 <= extra_high else max(statistics.median(extras), 0.0)
    return ProgramTime(
        seconds=base.seconds * (ratio + extra * updates_per_step),
        relative_spread=(high - low) / 2,
        how=(
            f"{ratio:.4f} × its dense program ({_PAIRS} interleaved pairs, 95 % interval "
            f"{low:.3f} to {high:.3f}), and {extra:.3f} dense steps for each mask update"
        ),
    )


def _timed(step: RunStep, state: Any, index: int, sparsify: bool) -> tuple[Any, float]:
    begun = time.perf_counter()
    state = jax.block_until_ready(step(state, index, sparsify))
    return state, time.perf_counter() - begun


def median_interval(values: Sequence[float], resamples: int = 2000) -> tuple[float, float]:
    """A 95 % bootstrap interval of the median."""
    generator = np.random.default_rng(0)
    drawn = generator.choice(np.asarray(values), size=(resamples, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return float(low), float(high)
