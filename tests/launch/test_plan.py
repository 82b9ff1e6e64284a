"""Plans: what is read out of a compiled program, the roofline, alternatives, the command."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from experiments.registry import resolve
from launch.alternatives import alternatives
from launch.chips import CHIPS, find_chip
from launch.compiled_step import CompiledStep, _out_of_memory, compile_step
from launch.cost import Kernel, kernels
from launch.hlo import parse
from launch.predict import collective_s, predict
from launch.topology import parse_topology
from models.errors import UserError

ROOT = pathlib.Path(__file__).parents[2]


def cost_of(function, *arguments):
    return kernels(parse(jax.jit(function).lower(*arguments).compile().as_text()))


def total(found, field):
    return sum(getattr(kernel, field) * kernel.times for kernel in found)


def test_products_of_a_loop_are_counted_as_often_as_it_runs():
    weights, x = jnp.ones((7, 32, 32)), jnp.ones((16, 32))

    def looped(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    found = cost_of(looped, x, weights)
    assert total(found, "flops") == 7 * 2 * 16 * 32 * 32


def test_products_are_those_that_the_model_says():
    from models.api import build

    experiment = resolve("dense_t5", "demo")
    model = build(experiment.model)
    shapes = {"inputs": (16, 128), "targets": (16, 32)}
    batch = {name: jnp.ones(shape, jnp.int32) for name, shape in shapes.items()}
    params = jax.eval_shape(model.init, jax.random.key(0))
    found = cost_of(lambda params, batch: model.losses(params, batch)["loss"][0], params, batch)
    expected = sum(model.forward_flops(shapes).values())
    # The relative bias is looked up by a product with one-hot rows; a model leaves that out.
    assert total(found, "flops") == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("window", "labels", "left", "right", "output", "pairs"),
    [
        # A plain product: (4, 6) by (6, 5).
        ("", "bf_io->bf", (4, 6), (6, 5), (4, 5), 4 * 5 * 6),
        # A padded convolution of width 3 over 4 places: 2 + 3 + 3 + 2 meetings.
        ("window={size=3 pad=1_1}, ", "b0f_0io->b0f", (2, 4, 3), (3, 3, 5), (2, 4, 5), 10 * 2 * 15),
        # Eight batched products as one convolution with holes: each output meets one input.
        (
            "window={size=8 stride=7 lhs_dilate=8}, ",
            "0bf_0oi->0bf",
            (8, 4, 6),
            (8, 5, 6),
            (8, 4, 5),
            8 * 4 * 5 * 6,
        ),
    ],
)
def test_convolutions_count_only_what_meets(window, labels, left, right, output, pairs):
    def shape(sizes):
        return f"f32[{','.join(map(str, sizes))}]"

    text = f"""HloModule m

ENTRY %main (a: {shape(left)}, b: {shape(right)}) -> {shape(output)} {{
  %a = {shape(left)} parameter(0)
  %b = {shape(right)} parameter(1)
  ROOT %c = {shape(output)} convolution(%a, %b), {window}dim_labels={labels}
}}
"""
    assert total(kernels(parse(text)), "flops") == 2 * pairs


def test_a_cut_from_a_large_array_costs_the_cut():
    weights = jnp.ones((64, 128, 128))

    def one_layer(weights, index):
        return jax.lax.dynamic_index_in_dim(weights, index, keepdims=False) * 2.0

    assert total(cost_of(one_layer, weights, 3), "nbytes") < 5 * 128 * 128 * 4


def test_all_reduce_sends_what_a_ring_does():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    rows = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    found = [kernel for kernel in cost_of(lambda x: jnp.sum(x, axis=0), rows) if kernel.sent]
    assert [kernel.opcode for kernel in found] == ["all-reduce"]
    assert found[0].group == 8 and found[0].sent == 2 * 256 * 4 * 7 / 8


def kernel_of(**values):
    blank = Kernel(
        opcode="fusion", times=1, flops=0, dtype="bf16", nbytes=0, sent=0, group=1, cycles=0
    )
    return dataclasses.replace(blank, **values)


def test_each_kernel_takes_the_longer_of_its_two_bounds():
    chip = CHIPS["v5e"]
    product = kernel_of(flops=1.97e12, nbytes=8.1e8, times=2)
    access = kernel_of(flops=1.97e9, nbytes=8.1e9)
    found = predict([product, access], chip)
    assert found.compute_s == pytest.approx(0.02) and found.memory_s == pytest.approx(0.01)
    assert found.step_s == pytest.approx(0.03) and found.bound == "products"
    reduce = kernel_of(opcode="all-reduce", sent=9e9, group=16)
    assert predict([reduce], chip).bound == "network"
    # Four by four: three hops along each of two axes, there and back.
    assert collective_s(reduce, chip) == pytest.approx(0.1 + 12e-6)
    beyond = dataclasses.replace(reduce, group=512)
    assert collective_s(beyond, chip) > 9e9 / chip.slow_bandwidth


@pytest.mark.parametrize(
    ("text", "expected"),
    [("v5e:4x4", ("v5e", 16, "4x4")), ("h100:8", ("h100", 8, "8")), ("cpu:2", ("cpu", 2, "2"))],
)
def test_topologies_are_read(text, expected):
    assert parse_topology(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v5e", "write the chip and how many"),
        ("v5f:4x4", "Did you mean v5e?"),
        ("v5e:0x4", "as in"),
    ],
)
def test_wrong_topologies_are_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_topology(text)
    with pytest.raises(UserError, match="no such chip"):
        find_chip("v5f")


def test_memory_of_sharded_parameters_is_a_devices_part():
    settings = {"fsdp": 8}
    base = resolve("bert_baseline", "demo")
    sharded = dataclasses.replace(base, mesh=dataclasses.replace(base.mesh, **settings))
    whole, part = (compile_step(one, jax.devices(), capacity=1e12) for one in (base, sharded))
    assert isinstance(whole, CompiledStep) and isinstance(part, CompiledStep)
    assert part.memory["parameters"] < 0.2 * whole.memory["parameters"]
    assert {kernel.opcode for kernel in part.kernels} & {"all-gather"}
    assert part.devices == 8


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("RESOURCE_EXHAUSTED: ... Used 21.50G of 15.75G hbm. Exceeded", (21.5, 15.75)),
        (
            "RESOURCE_EXHAUSTED: the total memory required for HLO temporaries (165.70G) exceeds "
            "available HBM (15.75G).",
            (165.7, 15.75),
        ),
        ("INVALID_ARGUMENT: something else", None),
    ],
)
def test_the_compilers_refusal_is_read(message, expected):
    found = _out_of_memory(message)
    assert found == (expected and tuple(size * 2**30 for size in expected))


def test_alternatives_start_with_what_changes_no_number():
    experiment = resolve("dense_t5", "paper")
    options = list(alternatives(experiment, 16, 2e9, 40e9, 16e9))
    assert options[0].settings == ("train.microbatches=4",)
    smaller = [any("batch_size" in one for one in option.settings) for option in options]
    assert smaller == sorted(smaller)
    for option in options[:20]:
        assert option.estimated_bytes <= 0.9 * 16e9
        option.experiment.check()
    # State that is too large alone needs shards.
    heavy = next(iter(alternatives(experiment, 16, 30e9, 40e9, 16e9)))
    assert any(one.startswith("mesh.fsdp=") for one in heavy.settings)


@pytest.mark.slow
def test_command_plans_for_simulated_devices(tmp_path):
    def plan(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "launch.plan", "--exp=sparse_t5_75", *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ,
        )

    done = plan("--topology=h100:8", f"--json={tmp_path / 'plan.json'}")
    assert done.returncode == 0, done.stderr
    for part in ("step time, roofline", "optimiser state", "sent, all-reduce", "chip-hours"):
        assert part in done.stdout
    done = plan("--topology=h100:3")
    assert done.returncode == 2 and "Traceback" not in done.stderr


@pytest.mark.slow
def test_tpu_slice_is_planned_where_its_compiler_is_installed(tmp_path):
    if not os.environ.get("TPU_LIBRARY_PATH"):
        pytest.importorskip("libtpu", reason="pip install -c constraints.txt -e '.[plan]'")
    done = subprocess.run(
        [sys.executable, "-m", "launch.plan", "--exp=dense_t5", "--topology=v5e:2x2"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert "compiler's estimate" in done.stdout and "fits" in done.stdout
