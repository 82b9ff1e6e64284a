"""Step times read from traces: synthetic TPU and GPU planes, and a real one of this CPU."""

import time

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData

from experiments.window import time_steps
from experiments.xplane import TraceError, times_of


def plane_text(name, lines):
    """An XSpace plane in text form: lines of (event name, start, duration in µs, hlo module)."""
    names = sorted({event[0] for _, events in lines for event in events})
    text = [f'planes {{ name: "{name}"']
    for index, event_name in enumerate(names, 1):
        text.append(
            f"event_metadata {{ key: {index} value {{ id: {index} name: '{event_name}' }} }}"
        )
    text.append("stat_metadata { key: 1 value { id: 1 name: 'hlo_module' } }")
    for line_name, events in lines:
        text.append(f'lines {{ name: "{line_name}"')
        for event_name, start_us, duration_us, module in events:
            stat = f"stats {{ metadata_id: 1 str_value: '{module}' }}" if module else ""
            text.append(
                f"events {{ metadata_id: {names.index(event_name) + 1} "
                f"offset_ps: {int(start_us * 1e6)} duration_ps: {int(duration_us * 1e6)} {stat} }}"
            )
        text.append("}")
    text.append("}")
    return "\n".join(text)


def profile(*planes):
    return ProfileData.from_serialized_xspace(
        ProfileData.text_proto_to_serialized_xspace("\n".join(planes))
    )


def test_tpu_modules_line_gives_period_and_span():
    events = [(f"jit_train_step({77})", 100 * i, 90, "") for i in range(6)]
    other = [("jit_eval_step(5)", 650, 30, "")]
    slow = [("jit_train_step(77)", 120 * i, 90, "") for i in range(6)]
    traced = times_of(
        profile(
            plane_text("/device:TPU:0", [("XLA Modules", events + other)]),
            plane_text("/device:TPU:1", [("XLA Modules", slow)]),
            plane_text("/device:TPU:0 SparseCore 0", [("XLA Modules", events)]),
        ),
        "jit_train_step",
        steps=6,
    )
    # The slower device counts.
    assert traced.plane == "/device:TPU:1"
    assert traced.period_s == pytest.approx(120e-6)
    assert traced.span_s == pytest.approx(90e-6)
    assert traced.runs == 5


def gpu_kernels(steps, per_step):
    return [
        (f"fusion_{kernel}", 1000 * step + 200 * kernel, 150, "jit_train_step")
        for step in range(steps)
        for kernel in range(per_step)
    ]


def test_gpu_kernels_are_shared_out_to_steps():
    kernels = gpu_kernels(steps=5, per_step=4)
    other = [("memcpy", 10, 5, ""), ("fusion_9", 4950, 5, "jit_eval_step")]
    traced = times_of(
        profile(plane_text("/device:GPU:0", [("Stream #13(Compute)", kernels + other)])),
        "jit_train_step",
        steps=5,
    )
    assert traced.period_s == pytest.approx(1000e-6)
    assert traced.span_s == pytest.approx(750e-6)


def test_gpu_kernels_that_do_not_divide_are_refused():
    kernels = gpu_kernels(steps=5, per_step=4)[:-1]
    with pytest.raises(TraceError, match=r"19 kernels .* do not divide into 5 steps"):
        times_of(
            profile(plane_text("/device:GPU:0", [("Stream #13(Compute)", kernels)])),
            "jit_train_step",
            steps=5,
        )


def test_trace_without_the_program_is_an_error():
    with pytest.raises(TraceError, match="no run of jit_train_step"):
        times_of(profile(plane_text("/host:CPU", [("python", [])])), "jit_train_step", steps=5)


def test_cpu_trace_agrees_with_the_wall_clock(tmp_path):
    def train_step(x):
        for _ in range(8):
            x = jnp.tanh(x @ x)
        return x

    step = jax.jit(train_step)
    x = jnp.eye(400) * 0.1
    jax.block_until_ready(step(x))
    begun = time.perf_counter()
    _, timed = time_steps(lambda x, _: step(x), x, steps=12, warmup=2, folder=tmp_path / "trace")
    assert time.perf_counter() - begun > 12 * timed.wall
    assert timed.xprof is not None, timed.note
    assert timed.steps == 11
    # A busy machine can pause the window at its edges, but not change what it is.
    assert timed.xprof == pytest.approx(timed.wall, rel=0.5)
    assert timed.busy <= timed.xprof * 1.2
