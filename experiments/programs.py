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
from experiments.window import time_steps

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
        "mesh": to_json(experiment.mesh),
        "optimizer": [
            optimizer.name,
            optimizer.factored,
            optimizer.scale_by_rms,
            optimizer.beta1 > 0,
            optimizer.clip_norm > 0,
            optimizer.weight_decay > 0,
        ],
        "pruning": pruning
        and [
            pruning.rule,
            pruning.pattern,
            pruning.distribution,
            pruning.update_every_steps,
            pruning.start_fraction,
            pruning.end_fraction,
        ],
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
        if experiment.pruning is None:
            measured = measure_program(program, experiment, batches)
        else:
            base = dataclasses.replace(experiment, pruning=None)
            base_program = compile_program(base)
            base_time = profile.get(base)
            if base_time is None:
                base_time = measure_program(base_program, base, batches)
                profile.put(base, base_time)
            ratio, update = compare_programs(base, base_program, experiment, program, batches)
            window = experiment.pruning.end_fraction - experiment.pruning.start_fraction
            updates_per_step = window / experiment.pruning.update_every_steps
            measured = _charge(base_time, ratio, update, updates_per_step)
        profile.put(experiment, measured)
        return measured


def _run_step(program: Program, experiment: Experiment, batches: Batches) -> RunStep:
    drawn = [batches.batch(experiment.seed, index) for index in range(_DRAWN_BATCHES)]

    def run_step(state: Any, index: int, update_masks: bool) -> Any:
        # Before the pruning window no mask is updated; crossing its end always updates them.
        progress = (np.float32(0), np.float32(update_masks))
        return program.train_step(state, drawn[index % _DRAWN_BATCHES], *progress)[0]

    return run_step


def measure_program(program: Program, experiment: Experiment, batches: Batches) -> ProgramTime:
    """Times a compiled program by an XProf trace of a warm window of steps."""
    run_step, state = _run_step(program, experiment, batches), program.init_state(0)
    state = jax.block_until_ready(run_step(state, 0, False))
    state, once_s = _timed(run_step, state, 1, False)
    low, high = _MEASURE_STEPS
    steps = min(max(math.ceil(_MEASURE_S / once_s), low), high)
    with tempfile.TemporaryDirectory(prefix="kpd-trace-") as folder:
        _, timed = time_steps(
            lambda state, index: run_step(state, index, False),
            state,
            steps,
            _WARMUP_STEPS,
            pathlib.Path(folder),
        )
    how = timed.note if timed.xprof is not None else f"wall clock over {timed.steps} steps"
    return ProgramTime(timed.best, timed.relative_spread or 0.0, how)


@dataclasses.dataclass(frozen=True)
class Median:
    """A median with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


def compare_programs(
    base: Experiment,
    base_program: Program,
    experiment: Experiment,
    program: Program,
    batches: Batches,
    pairs: int = _PAIRS,
) -> tuple[Median, Median]:
    """Times a pruned program against its dense one in interleaved steps.

    Returns the ratio of an ordinary step to a dense step, and what a step that chooses masks takes
    longer than an ordinary one, in dense steps.
    """
    base_step = _run_step(base_program, base, batches)
    step = _run_step(program, experiment, batches)
    base_state, state = base_program.init_state(0), program.init_state(0)
    for _ in range(2):
        base_state = base_step(base_state, 0, False)
        state = step(step(state, 0, False), 0, True)
    jax.block_until_ready((base_state, state))
    ratios, extras = [], []
    for index in range(pairs):
        base_state, base_s = _timed(base_step, base_state, index, False)
        state, step_s = _timed(step, state, index, False)
        state, update_s = _timed(step, state, index, True)
        ratios.append(step_s / base_s)
        extras.append((update_s - step_s) / base_s)
    return _median(ratios), _median(extras)


def _charge(
    base: ProgramTime, ratio: Median, extra: Median, updates_per_step: float
) -> ProgramTime:
    """Seconds of a program as a multiple of those of its base.

    Separate measurements differ by more than what pruning costs, and runs to be compared would
    then differ in steps by noise. So the ratio of paired steps counts, and where its 95 % interval
    holds 1 the program is charged like its base; likewise for what mask updates take.
    """
    charged = 1.0 if ratio.low <= 1.0 <= ratio.high else ratio.median
    update = 0.0 if extra.low <= 0.0 <= extra.high else max(extra.median, 0.0)
    return ProgramTime(
        seconds=base.seconds * (charged + update * updates_per_step),
        relative_spread=(ratio.high - ratio.low) / 2,
        how=(
            f"{charged:.4f} × its dense program (interleaved pairs, 95 % interval "
            f"{ratio.low:.3f} to {ratio.high:.3f}), and {update:.3f} dense steps for each "
            "mask update"
        ),
    )


def _timed(step: RunStep, state: Any, index: int, sparsify: bool) -> tuple[Any, float]:
    begun = time.perf_counter()
    state = jax.block_until_ready(step(state, index, sparsify))
    return state, time.perf_counter() - begun


def _median(values: Sequence[float], resamples: int = 2000) -> Median:
    generator = np.random.default_rng(0)
    drawn = generator.choice(np.asarray(values), size=(resamples, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Median(statistics.median(values), float(low), float(high))
