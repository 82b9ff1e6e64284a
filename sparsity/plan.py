"""Which parameters are pruned, how far each, and how many weights that is."""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from models.errors import UserError
from sparsity.config import UNSTRUCTURED, Pattern, PruningConfig, parse_pattern

# A component of a parameter's path that says that its first axis stacks layers.
STACKED = "layers"
_MAX_COUNT = 2**31


@dataclasses.dataclass(frozen=True)
class Target:
    """What one pruned parameter comes to; a unit is a weight, or a block of them."""

    shape: tuple[int, ...]
    # Number of layers stacked on the first axis; each is pruned on its own.
    layers: int
    # Share of zeros asked for; None where one threshold for all decides.
    sparsity: float | None
    pattern: Pattern
    # Units per layer, and how many of them are pruned at the end (0 for a global threshold).
    units: int
    pruned_units: int

    @property
    def matrix_shape(self) -> tuple[int, int, int]:
        """Returns the shape as (layers, rows, columns)."""
        return self.layers, math.prod(self.shape) // self.layers // self.shape[-1], self.shape[-1]

    @property
    def weights_per_unit(self) -> int:
        """Returns 1, or the number of weights in a block."""
        return math.prod(self.pattern.shape) if self.pattern.kind == "block" else 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """The targets by path, and the weights that one global threshold prunes at the end."""

    targets: dict[str, Target]
    # Paths that share one threshold (distribution="global"), and how many weights it prunes.
    global_paths: tuple[str, ...] = ()
    global_pruned: int = 0


def named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yields ('encoder/layers/mlp/wo', leaf) for dicts, tuples, lists and NamedTuples."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path, simple=True, separator="/"), leaf


def make_plan(cfg: PruningConfig, params: Any) -> Plan:
    """Returns the plan for a tree of arrays or shapes.

    Raises UserError when nothing is pruned, or a shape does not divide into the pattern's groups.
    """
    shapes = {path: tuple(leaf.shape) for path, leaf in named_leaves(params)}
    chosen = {path: shape for path, shape in shapes.items() if _is_pruned(cfg, path, shape)}
    if not chosen:
        raise UserError(
            f"rule={cfg.rule}: no parameter is pruned; exclude={list(cfg.exclude)} leaves none of"
            f" two dimensions or more."
        )
    embeddings = {path for path in chosen if _matches(cfg.embedding, path)}
    apart = embeddings if cfg.embedding_sparsity == "auto" else set()
    rest = {path: shape for path, shape in chosen.items() if path not in apart}
    shared = _shared_sparsities(cfg, rest)
    targets = {}
    for path, shape in chosen.items():
        if path in apart:
            targets[path] = _target(
                path, shape, embedding_sparsity(cfg.sparsity), UNSTRUCTURED, cfg
            )
        else:
            targets[path] = _target(path, shape, shared[path], parse_pattern(cfg.pattern), cfg)
    if cfg.distribution != "global":
        return Plan(targets)
    total = sum(math.prod(shape) for shape in rest.values())
    _check_count("all globally pruned parameters", total)
    return Plan(targets, tuple(rest), _round(cfg.sparsity * total))


def embedding_sparsity(sparsity: float) -> float:
    """Returns 1 − √(1 − S): what cancels the growth of an embedding table whose width grows with S.

    Frantar et al. 2024 (arXiv 2309.08520), released code: `embed_sparsity=auto`.
    """
    return 1.0 - math.sqrt(1.0 - sparsity)


def erk_sparsities(shapes: dict[str, tuple[int, ...]], sparsity: float) -> dict[str, float]:
    """Returns a sparsity per path: density ∝ (in + out) / (in · out), overall share `sparsity`.

    Erdős–Rényi-Kernel of Evci et al. 2020 (arXiv 1911.11134), section 3: densities are scaled so
    that the whole has the share of zeros asked for; a tensor that would be denser than dense stays
    dense and the others are scaled again.
    """
    sizes = {path: math.prod(shape) for path, shape in shapes.items()}
    per_layer = {path: shape[1:] if is_stacked(path) else shape for path, shape in shapes.items()}
    raw = {path: sum(shape) / math.prod(shape) for path, shape in per_layer.items()}
    dense = set(shapes) if sparsity == 0 else set()
    while len(dense) < len(shapes):
        budget = (1 - sparsity) * sum(sizes.values()) - sum(sizes[path] for path in dense)
        weight = sum(raw[path] * sizes[path] for path in shapes if path not in dense)
        scale = budget / weight
        over = {path for path in shapes if path not in dense and raw[path] * scale > 1}
        if not over:
            break
        dense |= over
    return {path: 0.0 if path in dense else 1 - raw[path] * scale for path in shapes}


def _shared_sparsities(
    cfg: PruningConfig, shapes: dict[str, tuple[int, ...]]
) -> dict[str, float | None]:
    if cfg.distribution == "global":
        return dict.fromkeys(shapes)
    if cfg.distribution == "erk":
        return dict(erk_sparsities(shapes, cfg.sparsity))
    return dict.fromkeys(shapes, cfg.sparsity)


def _target(
    path: str, shape: tuple[int, ...], sparsity: float | None, pattern: Pattern, cfg: PruningConfig
) -> Target:
    layers = shape[0] if is_stacked(path) else 1
    size = math.prod(shape) // layers
    _check_count(path, size)
    if pattern.kind == "n:m":
        axis = nm_axis(cfg)
        group = pattern.shape[1]
        name = "contraction" if axis == -2 else "output"
        if shape[axis] % group:
            raise UserError(
                f"pattern={cfg.pattern}: {path} has {shape[axis]} weights along its {name} axis,"
                f" not a multiple of {group}. Change the size, or add {path!r} to exclude."
            )
    if pattern.kind == "block" and (shape[-2] % pattern.shape[0] or shape[-1] % pattern.shape[1]):
        raise UserError(
            f"pattern={cfg.pattern}: {path} is {shape[-2]}x{shape[-1]}, which such blocks do not"
            f" tile. Change the size, or add {path!r} to exclude."
        )
    units = size // math.prod(pattern.shape) if pattern.kind == "block" else size
    pruned = 0 if sparsity is None else _round(sparsity * units)
    return Target(shape, layers, sparsity, pattern, units, pruned)


def nm_axis(cfg: PruningConfig) -> int:
    """Returns the array axis along which N:M groups run."""
    return -2 if cfg.nm_axis == "contraction" else -1


def _is_pruned(cfg: PruningConfig, path: str, shape: tuple[int, ...]) -> bool:
    if len(shape) - is_stacked(path) < 2 or _matches(cfg.exclude, path):
        return False
    return cfg.embedding_sparsity != "dense" or not _matches(cfg.embedding, path)


def is_stacked(path: str) -> bool:
    """Says whether the first axis of the parameter stacks layers."""
    return STACKED in path.split("/")


def _matches(expressions: tuple[str, ...], path: str) -> bool:
    return any(re.search(expression, path) for expression in expressions)


def _round(x: float) -> int:
    """Rounds half up: Python's round would go to the even neighbour."""
    return int(np.floor(x + 0.5))


def _check_count(name: str, size: int) -> None:
    if size >= _MAX_COUNT:
        raise UserError(
            f"{name}: {size} weights under one threshold; at most 2^31 − 1 are counted."
        )
