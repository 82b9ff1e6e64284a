"""Times compiled programs against each other, in interleaved calls of one process."""

import math
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.config import Experiment
from experiments.data.prefetch import Supplier
from experiments.distributed import from_first
from experiments.program import Program
from experiments.window import StepTime, time_steps
from models.mesh import place_batch

# A program is traced for about this many seconds of steps, within these numbers of steps.
_TRACED_S = 3.0
_TRACED_STEPS = (6, 60)
_WARMUP_STEPS = 3
# Rounds in which a program is compared with the one it is built on.
PAIRS = 15
# Blocks of calls by which programs are compared: about this long, within these numbers.
_BLOCK_S = 0.2
_BLOCK_CALLS = (4, 16)

# Batches that measurements take turns with.
_DRAWN_BATCHES = 4

# (index) → what to wait for: queues one call of a program.
Call = Callable[[int], Any]
# (state, index, update_masks) → state: one step, which also chooses masks anew where asked to.
RunStep = Callable[[Any, int, bool], Any]


class Median(NamedTuple):
    """A median with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


def make_call(program: Program, kind: str, progress: float, batches: Supplier) -> Call:
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


def compare_calls(base: Call, other: Call, base_s: float, rounds: int = PAIRS) -> Median:
    """Ratio of the seconds of two programs, of which `base` takes about `base_s`.

    A block averages over what varies from call to call, such as the layers that are dropped.
    """
    calls = calls_per_block(base_s)
    base_seconds, seconds = interleaved([(base, calls), (other, calls)], rounds)
    return median([one / of for one, of in zip(seconds, base_seconds, strict=True)])


def calls_per_block(call_s: float) -> int:
    """How many calls of about this many seconds are timed at once."""
    return min(max(math.ceil(_BLOCK_S / call_s), _BLOCK_CALLS[0]), _BLOCK_CALLS[1])


def interleaved(blocks: Sequence[tuple[Call, int]], rounds: int) -> list[list[float]]:
    """Seconds of one call, for each of the (call, calls in a block) and for each round.

    In a round each has one block of queued calls, in turns from the first to the last and back, so
    that what the machine does meanwhile, and its drift, meets all of them alike.
    """

    def block(call: Call, calls: int, turn: int) -> float:
        begun = time.perf_counter()
        for index in range(turn * calls, (turn + 1) * calls):
            done = call(index)
        jax.block_until_ready(done)
        return (time.perf_counter() - begun) / calls

    for call, calls in blocks:
        block(call, calls, 0)
    seconds: list[list[float]] = [[] for _ in blocks]
    for turn in range(rounds):
        places = list(range(len(blocks)))
        for place in places if turn % 2 == 0 else places[::-1]:
            seconds[place].append(block(*blocks[place], turn))
    return seconds


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


def trace_program(program: Program, experiment: Experiment, batches: Supplier) -> StepTime:
    """Times a compiled program by an XProf trace of a warm window of steps."""
    run_step, state = _run_step(program, experiment, batches), program.init_state(0)
    state = jax.block_until_ready(run_step(state, 0, False))
    state, once_s = _timed(run_step, state, 1, False)
    low, high = _TRACED_STEPS
    steps = from_first(min(max(math.ceil(_TRACED_S / once_s), low), high))
    with tempfile.TemporaryDirectory(prefix="kpd-trace-") as folder:
        return time_steps(
            lambda state, index: run_step(state, index, False),
            state,
            steps,
            _WARMUP_STEPS,
            pathlib.Path(folder),
        )[1]


def compare_programs(
    base: Experiment,
    base_program: Program,
    experiment: Experiment,
    program: Program,
    batches: Supplier,
    pairs: int = PAIRS,
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
    return median(ratios), median(extras)


def _timed(step: RunStep, state: Any, index: int, sparsify: bool) -> tuple[Any, float]:
    begun = time.perf_counter()
    state = jax.block_until_ready(step(state, index, sparsify))
    return state, time.perf_counter() - begun


def median(values: Sequence[float] | np.ndarray, resamples: int = 2000) -> Median:
    generator = np.random.default_rng(0)
    drawn = generator.choice(np.asarray(values), size=(resamples, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Median(float(np.median(values)), float(low), float(high))
