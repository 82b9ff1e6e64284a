"""Sparse networks as safetensors files: compressed or dense, both back bit for bit."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from models.errors import UserError
from sparsity.config import PruningConfig
from sparsity.encoding import decode, encode
from sparsity.plan import make_plan, named_leaves, nm_axis

_FORMAT = "kpd-sparse-1"


def save_dense(file: Path, params: Any) -> int:
    """Writes every parameter whole, zeros included, and returns the bytes on disk."""
    return _write(file, {path: (np.asarray(leaf), None) for path, leaf in named_leaves(params)})


def save_compressed(file: Path, params: Any, cfg: PruningConfig) -> int:
    """Writes pruned parameters as kept values and where they lie; returns the bytes on disk.

    N:M parameters store an index for each kept value, all other pruned ones a bit for each weight.
    """
    targets = make_plan(cfg, params).targets
    leaves = {}
    for path, leaf in named_leaves(params):
        target = targets.get(path)
        leaves[path] = (np.asarray(leaf), target.pattern if target else None)
    return _write(file, leaves, nm_axis(cfg))


def load(file: Path) -> dict[str, Any]:
    """Reads either form into nested dictionaries of numpy arrays, bit for bit as saved.

    Raises UserError where the file is missing, not one of ours, cut short or altered.
    """
    try:
        with safe_open(file, framework="numpy") as opened:
            metadata = opened.metadata() or {}
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"{file}: no such file.") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: damaged, or not a safetensors file ({error}).") from error
    if metadata.get("format") != _FORMAT:
        raise UserError(f"{file}: not written by this project's export (no format={_FORMAT}).")
    if metadata.get("digest") != _digest(arrays, metadata.get("layout", "")):
        raise UserError(
            f"{file}: its content does not match its digest, so it was altered or damaged. Export"
            f" it again from the run's checkpoint."
        )
    tree: dict[str, Any] = {}
    for path, layout in json.loads(metadata["layout"]).items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = decode(_parts(arrays, path, layout["parts"]), layout)
    return tree


def _write(file: Path, leaves: Mapping[str, tuple[np.ndarray, Any]], axis: int = -2) -> int:
    arrays: dict[str, np.ndarray] = {}
    layouts = {}
    for path, (leaf, pattern) in leaves.items():
        parts, layout = encode(leaf, pattern, axis)
        arrays |= {f"{path}{suffix}": part for suffix, part in parts.items()}
        layouts[path] = layout | {"parts": list(parts)}
    text = json.dumps(layouts, sort_keys=True)
    metadata = {"format": _FORMAT, "layout": text, "digest": _digest(arrays, text)}
    # Written aside and renamed, so that an interrupted export leaves no half file.
    aside = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        save_file(arrays, aside, metadata)
        os.replace(aside, file)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: cannot be written ({error}).") from error
    finally:
        aside.unlink(missing_ok=True)
    return file.stat().st_size


def _parts(arrays: dict[str, np.ndarray], path: str, suffixes: list[str]) -> dict[str, np.ndarray]:
    return {suffix: arrays[f"{path}{suffix}"] for suffix in suffixes}


def _digest(arrays: Mapping[str, np.ndarray], layout: str) -> str:
    """Returns the SHA-256 of the layout and of every array's name, type, shape and bytes."""
    digest = hashlib.sha256(layout.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.view(np.uint8).reshape(-1).data)
    return digest.hexdigest()
