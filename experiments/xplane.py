"""Step time from an XProf trace: reads the XPlane file without TensorBoard or TensorFlow."""

import dataclasses
import itertools
import pathlib
import re
import statistics
from collections import defaultdict

from jax.profiler import ProfileData

Interval = tuple[float, float]  # start and end in nanoseconds


@dataclasses.dataclass(frozen=True)
class TracedSteps:
    """Times of consecutive runs of one program on the slowest device, in seconds.

    `period_s` is the mean distance between the starts of consecutive runs: what a step costs in a
    warm loop, gaps between programs included. `span_s` is the mean time from a run's first to its
    last operation: what the device was busy for.
    """

    period_s: float
    span_s: float
    # Half the interquartile range of the single periods over their median.
    relative_spread: float
    runs: int
    plane: str


class TraceError(Exception):
    """The trace does not hold what a step time needs."""


def find_xplane(trace_dir: pathlib.Path) -> pathlib.Path:
    """The newest XPlane file below a trace folder; raises TraceError where there is none."""
    found = sorted(trace_dir.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise TraceError(f"{trace_dir}: no .xplane.pb file.")
    return found[-1]


def step_times(xplane: pathlib.Path, module: str, steps: int, skip: int = 1) -> TracedSteps:
    """Reads the times of `steps` runs of the program `module` (as in "jit_train_step").

    The first `skip` runs are left out. With several devices the slowest counts: nothing goes on
    before it is done.

    Raises:
      TraceError: fewer runs than steps in the trace, or kernels that cannot be shared out to steps.
    """
    return times_of(ProfileData.from_file(str(xplane)), module, steps, skip)


def times_of(profile: ProfileData, module: str, steps: int, skip: int = 1) -> TracedSteps:
    """Like `step_times`, for a profile already in memory."""
    runs = _tpu_runs(profile, module) or _gpu_runs(profile, module, steps)
    runs = runs or _cpu_runs(profile, module)
    if not runs:
        raise TraceError(f"the trace holds no run of {module}.")
    return max(
        (_summarise(name, sorted(found), steps, skip) for name, found in runs.items()),
        key=lambda traced: traced.period_s,
    )


def _summarise(plane: str, runs: list[Interval], steps: int, skip: int) -> TracedSteps:
    runs = runs[-steps:][skip:]
    if len(runs) < 2:
        raise TraceError(
            f"{plane}: {len(runs)} runs after the first {skip}, at least 2 are needed."
        )
    starts = [start for start, _ in runs]
    periods = [(later - sooner) * 1e-9 for sooner, later in itertools.pairwise(starts)]
    low, middle, high = (
        statistics.quantiles(periods, n=4) if len(periods) > 1 else (periods[0],) * 3
    )
    return TracedSteps(
        period_s=(starts[-1] - starts[0]) * 1e-9 / (len(starts) - 1),
        span_s=statistics.fmean(end - start for start, end in runs) * 1e-9,
        relative_spread=(high - low) / 2 / middle,
        runs=len(runs),
        plane=plane,
    )


def _tpu_runs(profile: ProfileData, module: str) -> dict[str, list[Interval]]:
    """A TPU's "XLA Modules" line has one event a run, named `module(fingerprint)`."""
    runs = defaultdict(list)
    for plane in profile.planes:
        if not re.fullmatch(r"/device:TPU:\d+", plane.name):
            continue
        for line in plane.lines:
            if line.name == "XLA Modules":
                for event in line.events:
                    if re.sub(r"\(\d+\)$", "", event.name) == module:
                        runs[plane.name].append(
                            (event.start_ns, event.start_ns + event.duration_ns)
                        )
    return dict(runs)


def _gpu_runs(profile: ProfileData, module: str, steps: int) -> dict[str, list[Interval]]:
    """A GPU's streams have kernels without a run id: equal shares of them are the steps."""
    runs = {}
    for plane in profile.planes:
        if not re.fullmatch(r"/device:GPU:\d+", plane.name):
            continue
        kernels = []
        for line in plane.lines:
            if line.name.startswith("Stream #"):
                for event in line.events:
                    if dict(event.stats).get("hlo_module") == module:
                        kernels.append((event.start_ns, event.start_ns + event.duration_ns))
        if not kernels:
            continue
        if len(kernels) % steps:
            raise TraceError(
                f"{plane.name}: {len(kernels)} kernels of {module} do not divide into "
                f"{steps} steps."
            )
        kernels.sort()
        size = len(kernels) // steps
        chunks = [kernels[first : first + size] for first in range(0, len(kernels), size)]
        runs[plane.name] = [(chunk[0][0], max(end for _, end in chunk)) for chunk in chunks]
    return runs


def _cpu_runs(profile: ProfileData, module: str) -> dict[str, list[Interval]]:
    """On the CPU every operation carries the id of its run: first start to last end is the run."""
    spans: dict[tuple[int, int], Interval] = {}
    host = profile.find_plane_with_name("/host:CPU")
    for line in host.lines if host else ():
        for event in line.events:
            stats = dict(event.stats)
            if stats.get("hlo_module") != module or "run_id" not in stats:
                continue
            run = (int(stats.get("device_ordinal", 0)), int(stats["run_id"]))
            start, end = event.start_ns, event.start_ns + event.duration_ns
            if run in spans:
                start, end = min(start, spans[run][0]), max(end, spans[run][1])
            spans[run] = (start, end)
    runs = defaultdict(list)
    for (device, _), span in spans.items():
        runs[f"/host:CPU device {device}"].append(span)
    return dict(runs)
