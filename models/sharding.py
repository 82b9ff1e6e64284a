"""Which axis of a parameter, and of all that is kept for it, lies on which axis of the mesh."""

import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from models.errors import UserError

# A pattern that a whole path must match, and the axes of one layer that it gives the parameter.
Rule = tuple[str, P]

# The first rule that matches decides. "tensor" is Megatron's split (Shoeybi et al. 2019, arXiv
# 1909.08053, section 3): what opens a block by columns, what closes it by rows, so that a block
# sums activations once; the vocabulary is split as well. "fsdp" takes the other axis, and each
# matrix is gathered along it where it is used (Rajbhandari et al. 2019, arXiv 1910.02054, stage 3).
# Vectors of the width of the model, and the few matrices outside layers and vocabulary, are whole.
SHARDING_RULES: tuple[Rule, ...] = (
    (r".*norm|.*norm/(scale|bias)", P()),
    (r".*attention/(query|key|value)", P("fsdp", "tensor")),
    (r".*attention/(query|key|value)_bias", P("tensor")),
    (r".*attention/out", P("tensor", "fsdp")),
    (r".*mlp/(wi|wi_gate|wi_up)", P("fsdp", "tensor")),
    (r".*mlp/wi_bias", P("tensor")),
    (r".*mlp/wo", P("tensor", "fsdp")),
    # Fast feedforward layers: rows are neurons, of which a token needs few.
    (r".*mlp/(node_in|node_out|gate)", P("tensor", "fsdp")),
    (r".*mlp/(node_in|gate)_bias", P("tensor")),
    (r".*mlp/leaf_in", P("tensor", "fsdp")),
    (r".*mlp/leaf_out", P("tensor", None, "fsdp")),
    (r".*mlp/leaf_(in|out)_bias", P("tensor")),
    (r".*/(out|wo)_bias", P()),
    (r".*/relative_bias", P(None, "tensor")),
    (r"token_embedding", P("tensor", "fsdp")),
    (r"logits", P("fsdp", "tensor")),
    (r"classifier", P(None, "tensor")),
    (r"(logits|classifier)_bias", P("tensor")),
    (r"(patch_embedding|pooler|head)(_bias)?", P()),
    (r"task_head/.*", P()),
    (r"(position|token_type)_embedding|position_scale|class_token", P()),
)


def shard_params(params: Any, mesh: Mesh, rules: Sequence[Rule] = SHARDING_RULES) -> Any:
    """Returns the abstract parameters with the shardings that the rules give them on the mesh.

    The layer axis of stacked parameters stays whole, and so does a dimension that its mesh axis
    does not divide: a vocabulary of 4,196 is not split over 8 devices, the layers' matrices are.
    Raises UserError for a parameter that no rule matches, naming it.
    """

    def shard(path: Any, leaf: Any) -> jax.ShapeDtypeStruct:
        name = _name(path)
        layer_axes = (None,) * ("layers" in name.split("/"))
        spec = layer_axes + tuple(_first_match(name, leaf, rules))
        if len(spec) > leaf.ndim:
            raise UserError(f"{name} {leaf.shape}: its sharding rule has {len(spec)} axes: {spec}.")
        fitting = (
            axis if axis and size % mesh.shape[axis] == 0 else None
            for axis, size in zip(spec, leaf.shape, strict=False)
        )
        return _placed(leaf, NamedSharding(mesh, P(*fitting)))

    return jax.tree.map_with_path(shard, params)


def shard_like(params: Any, state: Any, mesh: Mesh) -> Any:
    """Returns abstract `state` with arrays that belong to a parameter sharded like it.

    `params` are from `shard_params`. To a parameter belongs what has its shape and a path that ends
    with its path: moments, masks. All else (counters, row and column sums) is whole everywhere.
    """
    known = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(params)}
    whole = NamedSharding(mesh, P())

    def shard(path: Any, leaf: Any) -> jax.ShapeDtypeStruct:
        parts = _name(path).split("/")
        suffixes = ("/".join(parts[start:]) for start in range(len(parts)))
        owner = next((known[suffix] for suffix in suffixes if suffix in known), leaf)
        is_like = owner is not leaf and owner.shape == leaf.shape
        return _placed(leaf, owner.sharding if is_like else whole)

    return jax.tree.map_with_path(shard, state)


def _first_match(name: str, leaf: Any, rules: Sequence[Rule]) -> P:
    for pattern, spec in rules:
        if re.fullmatch(pattern, name):
            return spec
    raise UserError(
        f"{name} {leaf.shape}: no sharding rule matches this parameter; add one to SHARDING_RULES."
    )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _placed(leaf: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
