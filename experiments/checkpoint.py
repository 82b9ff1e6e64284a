"""Checkpoints with Orbax: asynchronous, atomic, verified; the last good one always loads."""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

from experiments.distributed import from_all, on_first
from models.errors import UserError
from sparsity.plan import named_leaves

Flat = dict[str, jax.Array]


class Checkpoints:
    """The checkpoints of one run folder, one per step, the newest few kept.

    Boolean arrays (masks) are stored one bit each. Orbax writes into a temporary folder and renames
    it, so a killed save leaves nothing half-made; it keeps no checksums, so a digest of every array
    travels in the metadata and is compared when loading.
    """

    def __init__(self, folder: pathlib.Path, keep: int):
        self._folder = folder
        self._options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(folder.absolute(), options=self._options)

    def save(self, step: int, state: Any, meta: dict[str, Any]) -> None:
        """Starts to save; the state may be changed as soon as this returns.

        Raises:
          UserError: the disk has no room; the checkpoints before this one are untouched.
        """
        flat = _pack(state)
        needed = sum(leaf.nbytes for leaf in flat.values())
        free = shutil.disk_usage(self._folder).free
        if free < needed * 1.05:
            raise UserError(
                f"{self._folder}: disk full: the checkpoint of step {step} needs "
                f"{needed / 1e6:.1f} MB, {free / 1e6:.1f} MB are free. Those before it are kept."
            )
        digests = {name: int(value) for name, value in digest_of(flat).items()}
        self._writing(
            step,
            lambda: self._manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(flat),
                    meta=ocp.args.JsonSave({**meta, "digests": digests}),
                ),
            ),
        )

    def wait(self) -> None:
        """Returns when the last save is on disk; raises UserError where it could not be written."""
        self._writing(None, self._manager.wait_until_finished)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def restore_latest(
        self, abstract_state: Any, tell: Callable[[str], None]
    ) -> tuple[Any, dict[str, Any]] | None:
        """Loads the newest whole checkpoint as (state, metadata); None where there is none.

        `abstract_state` has shapes and shardings; where they differ from stage to stage, it is a
        function of the number of finished steps that a checkpoint is of.
        A damaged one is told to the user and set aside as `damaged-STEP`; the one before is tried.
        """
        for step in sorted(self._manager.all_steps(), reverse=True):
            shapes = abstract_state(step) if callable(abstract_state) else abstract_state
            restored, reason = None, ""
            try:
                restored = self._restore(step, shapes)
            # What Orbax and TensorStore raise for missing, truncated or unreadable files.
            except (ValueError, OSError, KeyError, json.JSONDecodeError) as error:
                reason = str(error).strip().splitlines()[0][:160]
            # Damage that one host sees is damage for all.
            reason = next(filter(None, from_all(reason)), "")
            if not reason:
                return restored
            aside = self._set_aside(step)
            tell(f"checkpoint of step {step} is damaged ({reason}); set aside as {aside.name}.")
        return None

    def _restore(self, step: int, abstract_state: Any) -> tuple[Any, dict[str, Any]]:
        likes = dict(named_leaves(abstract_state))
        abstract = {
            name: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=_placement(leaf, likes[name])
            )
            for name, leaf in jax.eval_shape(_pack, abstract_state).items()
        }
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), meta=ocp.args.JsonRestore()
            ),
        )
        flat, meta = restored["state"], dict(restored["meta"])
        expected = meta.pop("digests")
        for name, value in digest_of(flat).items():
            if int(value) != expected[name]:
                raise ValueError(f"{name} is not what was saved")
        return _unpack(flat, abstract_state), meta

    def _set_aside(self, step: int) -> pathlib.Path:
        self._manager.close()
        aside = self._folder / f"damaged-{step}"

        def move() -> None:
            if aside.exists():
                shutil.rmtree(aside)
            (self._folder / str(step)).rename(aside)

        on_first(move)
        self._manager = ocp.CheckpointManager(self._folder.absolute(), options=self._options)
        return aside

    def _writing(self, step: int | None, write: Callable[[], Any]) -> None:
        try:
            write()
        except (OSError, ValueError) as error:
            if "No space left" not in str(error) and "RESOURCE_EXHAUSTED" not in str(error):
                raise
            what = f"the checkpoint of step {step}" if step is not None else "the last checkpoint"
            raise UserError(
                f"{self._folder}: disk full: {what} was not written. Those before it are kept."
            ) from error


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _pack(state: Any) -> Flat:
    """Names → arrays, booleans as bits, keys as their data."""

    def one(leaf: jax.Array) -> jax.Array:
        if _is_key(leaf):
            return jax.random.key_data(leaf)
        if leaf.dtype == jnp.bool_:
            return jnp.packbits(leaf, axis=-1)
        return leaf

    return {name: one(leaf) for name, leaf in named_leaves(state)}


def _placement(stored: Any, like: Any) -> Any:
    """Where to read an array to: its place in the state, or whole to every device if packed."""
    if stored.shape != like.shape and isinstance(like.sharding, NamedSharding):
        return NamedSharding(like.sharding.mesh, PartitionSpec())
    return like.sharding


def _unpack(flat: Flat, abstract_state: Any) -> Any:
    def one(name: str, like: Any) -> jax.Array:
        leaf = flat[name]
        if _is_key(like):
            leaf = jax.random.wrap_key_data(leaf)
        elif like.dtype == jnp.bool_:
            leaf = jnp.unpackbits(leaf, axis=-1, count=like.shape[-1]).astype(bool)
        return jax.device_put(leaf, like.sharding)

    leaves = [one(name, like) for name, like in named_leaves(abstract_state)]
    return jax.tree.unflatten(jax.tree.structure(abstract_state), leaves)


@jax.jit
def digest_of(flat: Flat) -> dict[str, jax.Array]:
    """A 32-bit digest of each array: Σ word · (2·index + 1) · odd constant, modulo 2³²."""

    def one(leaf: jax.Array) -> jax.Array:
        width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[leaf.dtype.itemsize]
        words = jax.lax.bitcast_convert_type(leaf, width).reshape(-1).astype(jnp.uint32)
        index = jax.lax.iota(jnp.uint32, words.size)
        mixed = (words ^ (words >> 15)) * jnp.uint32(0x2C1B3C6D)
        return jnp.sum((mixed + 1) * (2 * index + 1), dtype=jnp.uint32)

    return {name: one(leaf) for name, leaf in flat.items()}
