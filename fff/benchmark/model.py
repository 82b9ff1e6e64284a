"""The whole encoder beside its feedforward layers: what Amdahl leaves of their speed."""

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from fff.config import FFFConfig
from fff.interleave import interleave, ratio
from fff.layer import make_mlp
from models.api import build, build_encoder
from models.presets import CRAMMED_BERT_UNGATED

_SEQUENCE = 128


def time_models(cfg: FFFConfig, layers: int, seconds: float) -> dict[str, Any]:
    """Returns milliseconds of 128 tokens through crammed BERT: dense, fast, and without layers."""
    sized = dataclasses.replace(CRAMMED_BERT_UNGATED, num_layers=layers, scan_layers=False)
    forms: dict[str, FFFConfig | None] = {
        "dense 3072": None,
        "FFF": cfg,
        "no feedforward": FFFConfig(form="none"),
    }
    tokens = np.random.default_rng(0).integers(5, sized.vocab_size, (1, _SEQUENCE), np.int32)
    calls: dict[str, Callable[[], Any]] = {}
    for name, fff in forms.items():
        mlp = make_mlp(fff, sized.model_dim) if fff else None
        params = jax.jit(build(sized, mlp).init)(jax.random.key(0))
        encode = build_encoder(sized, mlp)
        compiled = jax.jit(lambda params, encode=encode: encode(params, {"tokens": tokens})[0])
        calls[name] = partial(compiled, params)
    times = interleave(calls, seconds, 3)
    return {
        "layers": layers,
        "tokens": _SEQUENCE,
        "milliseconds": {name: 1e3 * statistics.median(t) for name, t in times.items()},
        "speedup": ratio(times, "dense 3072", "FFF"),
        "speedup_without_feedforward": ratio(times, "dense 3072", "no feedforward"),
    }
