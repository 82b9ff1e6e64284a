"""The mesh of devices, and where batches and activations lie on it."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from models.config import MeshConfig
from models.errors import UserError

# Devices that differ in one of these have different examples; those along "tensor" share them.
BATCH_AXES = ("replica", "data", "fsdp")

_ACTIVATIONS = {
    # (B, T, D): what runs from layer to layer. XLA would else gather examples, not parameters.
    "residual": P(BATCH_AXES),
    # (B, T, V): split even if the vocabulary does not divide evenly, which parameters cannot be.
    "logits": P(BATCH_AXES, None, "tensor"),
    # (V, D): an embedding table that is looked up, whole rows.
    "table": P("tensor"),
    # Of any shape, whole on every device.
    "everywhere": P(),
}


def make_mesh(cfg: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the mesh of `cfg` over the first of `devices`, by default of all that there are.

    Where devices are in several slices, which only a slower network joins, `replica` spans them.
    Raises UserError if the devices cannot be arranged so.
    """
    devices = list(jax.devices() if devices is None else devices)
    sizes = cfg.sizes(len(devices))
    shape, axes = tuple(sizes.values()), tuple(sizes)
    if math.prod(shape) < len(devices) and jax.process_count() > 1:
        raise UserError(
            f"mesh.data={cfg.data}: leaves out some of the {len(devices)} devices, but every host "
            "must take part; mesh.data=-1 uses them all."
        )
    devices = devices[: math.prod(shape)]
    # By default newer JAX makes axes Explicit, where every operation must say its output's axes.
    types = (AxisType.Auto,) * len(axes)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        try:
            return jax.make_mesh(shape, axes, axis_types=types, devices=devices)
        except NotImplementedError:
            # The torus of a TPU slice has no axes of these sizes: parts of its axes must do, whose
            # rings are not closed.
            grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
            return Mesh(grid, axes, axis_types=types)
    if cfg.replica % slices:
        raise UserError(
            f"mesh.replica={cfg.replica}: the devices are in {slices} slices, so that it must be "
            f"a multiple of {slices}; mesh.replica={slices} is the smallest."
        )
    within_slice = (cfg.replica // slices, *shape[1:])
    grid = mesh_utils.create_hybrid_device_mesh(
        within_slice, (slices, 1, 1, 1), devices, allow_split_physical_axes=True
    )
    return Mesh(grid, axes, axis_types=types)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Splits axis 0 of every array of a batch over all axes but "tensor"."""
    return NamedSharding(mesh, P(BATCH_AXES))


def check_batch_size(mesh: Mesh, batch_size: int) -> None:
    """Raises UserError unless devices get equal shares of `batch_size` examples."""
    parts = math.prod(mesh.shape[axis] for axis in BATCH_AXES)
    if batch_size % parts:
        sizes = " x ".join(f"{axis} {mesh.shape[axis]}" for axis in BATCH_AXES)
        nearest = max(1, round(batch_size / parts)) * parts
        raise UserError(
            f"{batch_size} examples at a time cannot be shared evenly by the {parts} parts of the "
            f"mesh ({sizes}); the nearest number is {nearest}."
        )


def own_rows(shapes: Mapping[str, jax.ShapeDtypeStruct]) -> slice:
    """Returns the rows of a batch of these shapes that this process's devices need, as one range.

    With one process it is all rows.
    """
    if jax.process_count() == 1:
        return slice(None)
    ranges = [
        place[0].indices(like.shape[0])
        for like in shapes.values()
        for place in like.sharding.addressable_devices_indices_map(like.shape).values()
        if place is not None
    ]
    return slice(min(start for start, _, _ in ranges), max(stop for _, stop, _ in ranges))


def place_batch(
    batch: dict[str, np.ndarray],
    shapes: Mapping[str, jax.ShapeDtypeStruct],
    rows: slice = slice(None),
) -> dict[str, Any]:
    """Returns a batch as arrays over the devices of all processes.

    `batch` has these `rows` of a batch of these shapes, all that this process needs. With one
    process the batch is given back as it is.
    """
    if jax.process_count() == 1:
        return batch

    def place(given: np.ndarray, like: jax.ShapeDtypeStruct) -> jax.Array:
        first, _, _ = rows.indices(like.shape[0])

        def part(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None  # it is, for shapes that are known
            start, stop, _ = index[0].indices(like.shape[0])
            return given[start - first : stop - first]

        return jax.make_array_from_callback(like.shape, like.sharding, part)

    return {name: place(given, shapes[name]) for name, given in batch.items()}


def on_mesh(function: Callable[..., Any], mesh: Mesh) -> Callable[..., Any]:
    """Returns `function` in which `constrain` works; its arguments must lie on the mesh."""

    @functools.wraps(function)
    def traced(*args: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(*args)

    return traced


def constrain(
    x: jax.Array, kind: Literal["residual", "logits", "table", "everywhere"]
) -> jax.Array:
    """Says where an array of this kind lies on the mesh; outside `on_mesh` it does nothing."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, _ACTIVATIONS[kind])
