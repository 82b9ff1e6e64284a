"""Reads transformers' weights of BERT, T5 and ViT."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from models.api import build
from models.config import ModelConfig
from models.errors import UserError, did_you_mean
from models.flops import flatten_paths
from models.functional import Params
from models.hugging_face.config import check_known, check_same, from_json
from models.hugging_face.files import CONFIG, Tensor, open_tensors, read_json
from models.hugging_face.names import NAMES, Names, Row, Shape

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Part(NamedTuple):
    """What one tensor of a file is: a parameter, or one layer of it."""

    row: Row
    # which layer of a parameter that is stacked over layers, else None
    layer: int | None
    # shape of the parameter or of its layer
    shape: Shape
    # the tensors of the file that hold it; more than one must be equal
    tensors: list[Tensor]


def load(path: Path, cfg: ModelConfig | None = None) -> tuple[ModelConfig, Params]:
    """Returns the model in a safetensors file, or in a folder of one or more, as NumPy arrays.

    The configuration comes from config.json in the folder (or beside the file), `param_dtype` from
    the tensors. A `cfg` that is given must agree with config.json on what the model computes, and
    with it the file may be absent; all else is as `cfg` says, and tensors are cast to its
    `param_dtype`.

    All tensors are checked first and then read one by one into the result. Raises UserError for a
    damaged file, for a model that ours cannot be, and for a tensor that is missing, unknown, of a
    wrong shape, or unlike another one that is tied to it. `models.hugging_face.names` lists the few
    tensors that are left out because our models have no use for them.
    """
    path = Path(path)
    config_file = (path if path.is_dir() else path.parent) / CONFIG
    with open_tensors(path) as tensors:
        found = _configuration(config_file, tensors, cfg)
        abstract = jax.eval_shape(build(found).init, jax.random.key(0))
        parts = _parts(path, tensors, found, flatten_paths(abstract))
        if cfg is None:
            found = replace(found, param_dtype=_common_dtype(path, parts))
        dtype = jnp.dtype(found.param_dtype)
        params = jax.tree.map(lambda leaf: np.empty(leaf.shape, dtype), abstract)
        _read(parts, flatten_paths(params))
    return found, params


def _configuration(
    config_file: Path, tensors: Mapping[str, Tensor], cfg: ModelConfig | None
) -> ModelConfig:
    """Returns `cfg` if it is given and does not contradict the file, else what the file says."""
    if cfg is not None:
        cfg.check()
        check_known(cfg)
    if not config_file.exists():
        if cfg is None:
            raise UserError(f"{config_file}: no such file, and no configuration was given.")
        return cfg
    fields = read_json(config_file)
    try:
        found = from_json(fields, tensors)
        if cfg is not None:
            check_same(cfg, found)
    except UserError as error:
        raise UserError(f"{config_file}: {error}") from error
    return cfg or found


def _parts(
    path: Path, tensors: Mapping[str, Tensor], cfg: ModelConfig, abstract: Mapping[str, jax.Array]
) -> list[Part]:
    """Returns all that the model needs, with the tensors of the file that hold it."""
    names = NAMES[type(cfg)]
    spelled = _spelled(path, tensors, names)
    parts: list[Part] = []
    wanted: set[str] = set()
    for row in names.rows(cfg):
        shape = abstract[row.path].shape
        layers = range(shape[0]) if row.is_stacked else [None]
        for layer in layers:
            spellings = [name.replace("*", str(layer)) for name in row.names]
            wanted.update(spellings)
            found = [spelled[name] for name in spellings if name in spelled]
            if not found:
                raise UserError(
                    f"{path}: tensor {spellings[0]} is missing, which {row.path} needs."
                    f"{did_you_mean(spellings[0], spelled)}"
                )
            part = Part(row, layer, shape[1:] if row.is_stacked else shape, found)
            _check(part)
            parts.append(part)
    if extra := sorted(spelled.keys() - wanted):
        more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
        raise UserError(
            f"{path}: tensor {spelled[extra[0]].name}{more} is no part of such a model."
            f"{did_you_mean(extra[0], wanted)}"
        )
    return parts


def _spelled(path: Path, tensors: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """Returns the tensors by the names that the rows have, without those that are left out."""
    spelled: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        usual = names.spell(name)
        if usual in spelled:
            raise UserError(f"{path}: {spelled[usual].name} and {name} both name one tensor.")
        if not names.is_left_out(usual):
            spelled[usual] = tensor
    return spelled


def _check(part: Part) -> None:
    needed = part.row.their_shape(part.shape)
    for tensor in part.tensors:
        if tensor.shape != needed:
            raise UserError(
                f"{tensor.file}: tensor {tensor.name} has shape {tensor.shape}, but "
                f"{part.row.path} needs {needed}."
            )
        if tensor.dtype not in _DTYPES:
            raise UserError(
                f"{tensor.file}: tensor {tensor.name} is {tensor.dtype}, must be one of "
                f"{', '.join(_DTYPES)}."
            )


def _common_dtype(path: Path, parts: list[Part]) -> str:
    first, *others = (tensor for part in parts for tensor in part.tensors)
    for tensor in others:
        if tensor.dtype != first.dtype:
            raise UserError(
                f"{path}: tensor {first.name} is {first.dtype} and {tensor.name} {tensor.dtype}. "
                f"Give a configuration: all are cast to its param_dtype."
            )
    return _DTYPES[first.dtype]


def _read(parts: list[Part], params: Mapping[str, np.ndarray]) -> None:
    """Copies every tensor to its place in the arrays of `params`."""
    for row, layer, shape, (first, *others) in parts:
        array = first.read()
        for other in others:
            if not np.array_equal(array, other.read()):
                raise UserError(
                    f"{other.file}: tensors {first.name} and {other.name} differ, and both are "
                    f"{row.path}."
                )
        place = params[row.path] if layer is None else params[row.path][layer]
        place[...] = row.to_ours(array, shape)
