"""How many devices each axis of a mesh gets, and which; what a batch must be for it."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from models.config import MeshConfig
from models.errors import UserError
from models.mesh import batch_sharding, check_batch_size, constrain, make_mesh, on_mesh


@pytest.mark.parametrize(
    ("given", "devices", "sizes"),
    [
        ({}, 1, (1, 1, 1, 1)),
        ({}, 8, (1, 8, 1, 1)),
        ({"tensor": 2, "fsdp": 2}, 8, (1, 2, 2, 2)),
        ({"replica": 2, "tensor": 6}, 12, (2, 1, 1, 6)),
        ({"data": 1}, 8, (1, 1, 1, 1)),
        ({"data": 3, "tensor": 2}, 8, (1, 3, 1, 2)),
    ],
)
def test_sizes(given, devices, sizes):
    assert MeshConfig(**given).sizes(devices) == dict(
        zip(("replica", "data", "fsdp", "tensor"), sizes, strict=True)
    )


@pytest.mark.parametrize(
    ("given", "devices", "message"),
    [
        ({"tensor": 3}, 8, "tensor 3: does not fit 8 devices.* has mesh.tensor=4."),
        ({"tensor": 16}, 8, "has mesh.tensor=8."),
        ({"data": 4, "tensor": 4}, 8, "data 4 x fsdp 1 x tensor 4: .* has mesh.tensor=2."),
        ({"fsdp": 3, "tensor": 3}, 8, "has mesh.fsdp=2 mesh.tensor=4."),
        ({"data": 0}, 8, "mesh.data=0: must be at least 1, or -1 for all devices left."),
        ({"fsdp": -1}, 8, "mesh.fsdp=-1: must be at least 1."),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_the_nearest_that_can(given, devices, message):
    with pytest.raises(UserError, match=message):
        MeshConfig(**given).sizes(devices)


def test_mesh_has_auto_axes_over_the_first_devices():
    mesh = make_mesh(MeshConfig(data=1, fsdp=2, tensor=2))
    assert mesh.shape == {"replica": 1, "data": 1, "fsdp": 2, "tensor": 2}
    assert set(mesh.axis_types) == {AxisType.Auto}
    assert list(mesh.devices.flat) == jax.devices()[:4]


@dataclass(frozen=True)
class FakeDevice:
    """What making a mesh asks of a device."""

    id: int
    process_index: int
    slice_index: int
    platform: str = "gpu"
    device_kind: str = "fake"


def test_only_the_replica_axis_leaves_a_slice():
    # Two slices whose devices are listed in turn.
    devices = [FakeDevice(id=i, process_index=i, slice_index=i % 2) for i in range(8)]
    mesh = make_mesh(MeshConfig(replica=2, tensor=2), devices)
    slices = np.vectorize(lambda device: device.slice_index)(mesh.devices)
    assert slices.shape == (2, 2, 1, 2)
    assert (slices[0] == 0).all() and (slices[1] == 1).all()
    with pytest.raises(UserError, match=r"mesh\.replica=1: the devices are in 2 slices"):
        make_mesh(MeshConfig(tensor=2), devices)


def test_axes_that_a_torus_does_not_have_are_made_of_parts_of_its_own():
    @dataclass(frozen=True)
    class FakeChip(FakeDevice):
        coords: tuple[int, int, int] = (0, 0, 0)
        core_on_chip: int = 0
        platform: str = "tpu"
        device_kind: str = "TPU v5"

    chips = [
        FakeChip(id=i, process_index=0, slice_index=0, coords=(i % 4, i // 4 % 4, i // 16))
        for i in range(64)
    ]
    # 8 is no product of axes of 4 x 4 x 4.
    mesh = make_mesh(MeshConfig(data=8, fsdp=8), chips)
    assert mesh.devices.shape == (1, 8, 8, 1)
    assert {chip.id for chip in mesh.devices.flat} == set(range(64))


def test_batch_lies_on_all_axes_but_tensor():
    mesh = make_mesh(MeshConfig(replica=2, data=1, fsdp=2, tensor=2))
    assert batch_sharding(mesh).shard_shape((12, 5)) == (3, 5)
    check_batch_size(mesh, 12)
    with pytest.raises(UserError, match=r"10 examples .* 4 parts .*fsdp 2\); .* nearest .* is 8"):
        check_batch_size(mesh, 10)


def test_constraints_hold_on_the_mesh_and_are_nothing_elsewhere():
    mesh = make_mesh(MeshConfig(data=4, tensor=2))
    logits_BTV = jnp.zeros((8, 3, 6))
    place = on_mesh(lambda x: constrain(x + 1, "logits"), mesh)
    placed = jax.jit(place, in_shardings=NamedSharding(mesh, P()))(logits_BTV)
    wanted = NamedSharding(mesh, P(("replica", "data", "fsdp"), None, "tensor"))
    assert placed.sharding.is_equivalent_to(wanted, 3)
    assert constrain(logits_BTV, "logits") is logits_BTV
