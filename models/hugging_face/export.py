"""Writes our BERT, T5 and ViT so that transformers loads them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from models.api import build
from models.config import BertConfig, ModelConfig
from models.errors import UserError
from models.flops import flatten_paths
from models.functional import Params
from models.hugging_face.config import bert_class, to_json
from models.hugging_face.files import CONFIG, WEIGHTS
from models.hugging_face.names import NAMES


def export(cfg: ModelConfig, params: Params, folder: Path) -> None:
    """Writes model.safetensors and config.json, which replace those that are there.

    Every parameter is written in its own dtype, pruned weights as zeros. transformers' class of a
    BERT with both pooler and head, BertForPreTraining, also tells whether one sentence follows
    another: ours does not, and that head is written as zeros. Label smoothing and the weight of
    the z-loss have no place in such files.

    Raises UserError for a model that transformers has no class of, the crammed BERT among them,
    for parameters that are not those of `cfg`, and if the files cannot be written.
    """
    cfg.check()
    fields = to_json(cfg)
    tensors = _tensors(cfg, params)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # transformers refuses files that do not name the framework whose layouts they follow.
        _replace(folder / WEIGHTS, lambda file: save_file(tensors, file, metadata={"format": "pt"}))
        text = json.dumps(fields, indent=2, sort_keys=True) + "\n"
        _replace(folder / CONFIG, lambda file: file.write_text(text))
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder}: cannot be written ({error}).") from error


def _tensors(cfg: ModelConfig, params: Params) -> dict[str, np.ndarray]:
    flat = flatten_paths(params)
    _check_parameters(cfg, flat)
    tensors = {}
    for row in NAMES[type(cfg)].rows(cfg):
        array = np.asarray(flat[row.path])
        layers = enumerate(array) if row.is_stacked else [(None, array)]
        for layer, part in layers:
            name = row.names[0].replace("*", str(layer))
            tensors[name] = np.ascontiguousarray(row.to_theirs(part))
    if isinstance(cfg, BertConfig):
        if bert_class(cfg) == "BertForPreTraining":
            dtype = tensors["bert.pooler.dense.weight"].dtype
            tensors["cls.seq_relationship.weight"] = np.zeros((2, cfg.model_dim), dtype)
            tensors["cls.seq_relationship.bias"] = np.zeros(2, dtype)
        elif bert_class(cfg) == "BertModel":
            tensors = {name.removeprefix("bert."): array for name, array in tensors.items()}
    return tensors


def _check_parameters(cfg: ModelConfig, flat: dict[str, Any]) -> None:
    needed = flatten_paths(jax.eval_shape(build(cfg).init, jax.random.key(0)))
    for path in sorted(needed.keys() ^ flat.keys()):
        what = "is missing" if path in needed else "is no part of the configuration's model"
        raise UserError(f"parameter {path}: {what}.")
    for path, leaf in needed.items():
        if flat[path].shape != leaf.shape:
            raise UserError(
                f"parameter {path}: has shape {flat[path].shape}, the configuration needs "
                f"{leaf.shape}."
            )


def _replace(file: Path, write: Callable[[Path], Any]) -> None:
    """Writes aside and renames, so that an interruption leaves no half file."""
    aside = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        write(aside)
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)
