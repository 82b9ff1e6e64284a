"""Seconds per compiled program, measured once for a device and kept in the working folder."""

import contextlib
import dataclasses
import datetime
import fcntl
import math
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from experiments.config import Experiment
from experiments.data.prefetch import Supplier
from experiments.device import Device
from experiments.distributed import from_first, is_first
from experiments.program import Program, compile_program
from experiments.program_key import program_description, program_key
from experiments.run_folder import read_json, write_json
from experiments.window import time_steps
from models.mesh import place_batch

# A program's time is taken from about this many seconds of steps, within these numbers of steps.
_MEASURE_S = 3.0
_MEASURE_STEPS = (6, 60)
_WARMUP_STEPS = 3
# Pairs of single steps by which a program is compared with the one it is built on.
_PAIRS = 15
# Blocks of calls by which other programs are compared: about this long, within these numbers.
_BLOCK_S = 0.2
_BLOCK_CALLS = (4, 16)

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


@dataclasses.dataclass(frozen=True)
class Median:
    """A median with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


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
            _call(base_program, "train", 0.0, self._batches),
            _call(program, kind, progress, self._batches),
            base.seconds,
        )
        charged = 1.0 if ratio.low <= 1.0 <= ratio.high else ratio.median
        return ProgramTime(
            seconds=base.seconds * charged,
            relative_spread=(ratio.high - ratio.low) / 2 / ratio.median,
            how=(
                f"{charged:.4f} × the plain program (interleaved, 95 % interval "
                f"{ratio.low:.3f} to {ratio.high:.3f})"
            ),
        )


def seconds_per_step(
    experiment: Experiment,
    program: Program,
    batches: Supplier,
    device: Device,
    workdir: pathlib.Path,
) -> ProgramTime:
    """What one training step of the experiment takes here, without what is beside it."""
    return ProgramTimes(experiment, batches, device, workdir).seconds(program, "train")


def _call(program: Program, kind: str, progress: float, batches: Supplier) -> Callable[[int], Any]:
    """Returns a function that queues one call of a program and hands back what to wait for."""
    side = next((side for side in program.sides if side.kind == kind), None)
    shapes = program.train_batch_shapes if side is None else program.batch_shapes
    drawn = [
        place_batch(fill_batch(batches.batch(0, index), shapes), shapes)
        for index in range(_DRAWN_BATCHES)
    ]
    state, share = program.init_state(0), np.float32(progress)

    def call(index: int) -> Any:
        nonlocal state
        batch = drawn[index % _DRAWN_BATCHES]
        if side is None:
            state = program.train_step(state, batch, share, share)[0]
        else:
            state = side.run(state, batch, share)[0]
        return state

    return call


def fill_batch(batch: Mapping[str, np.ndarray], shapes: Any) -> dict[str, np.ndarray]:
    """Repeats a batch's examples to the given shapes; arrays that it lacks are 0."""
    return {
        name: np.resize(batch[name], leaf.shape)
        if name in batch
        else np.zeros(leaf.shape, leaf.dtype)
        for name, leaf in shapes.items()
    }


def compare_calls(
    base: Callable[[int], Any], other: Callable[[int], Any], base_s: float, blocks: int = _PAIRS
) -> Median:
    """Ratio of the seconds of two programs, in interleaved blocks of queued calls.

    A block averages over what varies from call to call, such as the layers that are dropped.
    """
    calls = min(max(math.ceil(_BLOCK_S / base_s), _BLOCK_CALLS[0]), _BLOCK_CALLS[1])

    def block(call: Callable[[int], Any], first: int) -> float:
        begun = time.perf_counter()
        for index in range(first, first + calls):
            done = call(index)
        jax.block_until_ready(done)
        return time.perf_counter() - begun

    for call in (base, other):
        block(call, 0)
    ratios = []
    for index in range(blocks):
        base_block_s = block(base, index * calls)
        ratios.append(block(other, index * calls) / base_block_s)
    return _median(ratios)


def _run_step(program: Program, experiment: Experiment, batches: Supplier) -> RunStep:
    shapes = program.train_batch_shapes
    drawn = [
        place_batch(fill_batch(batches.batch(experiment.seed, index), shapes), shapes)
        for index in range(_DRAWN_BATCHES)
    ]

    def run_step(state: Any, index: int, update_masks: bool) -> Any:
        # Before the pruning window no mask is updated; crossing its end always updates them.
        progress = (np.float32(0), np.float32(update_masks))
        return program.train_step(state, drawn[index % _DRAWN_BATCHES], *progress)[0]

    return run_step


def measure_program(program: Program, experiment: Experiment, batches: Supplier) -> ProgramTime:
    """Times a compiled program by an XProf trace of a warm window of steps."""
    run_step, state = _run_step(program, experiment, batches), program.init_state(0)
    state = jax.block_until_ready(run_step(state, 0, False))
    state, once_s = _timed(run_step, state, 1, False)
    low, high = _MEASURE_STEPS
    steps = from_first(min(max(math.ceil(_MEASURE_S / once_s), low), high))
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


def compare_programs(
    base: Experiment,
    base_program: Program,
    experiment: Experiment,
    program: Program,
    batches: Supplier,
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
