"""Generates targets from inputs with T5."""

from collections.abc import Mapping
from typing import Any, Protocol

import jax

from models.config import T5Config
from models.errors import UserError
from models.functional import Params, functional
from models.layers import MakeMlp
from models.search import beam_search, greedy_search
from models.t5 import T5
from models.t5_cache import Past, decode_step, empty_past, read_inputs


class Generate(Protocol):
    """Computes targets (B, max_length), int32, from `inputs` (B, S) of a batch, padded with 0."""

    def __call__(self, params: Params, batch: Mapping[str, Any]) -> jax.Array: ...


def make_generate(
    cfg: T5Config,
    make_mlp: MakeMlp | None = None,
    *,
    max_length: int,
    num_beams: int = 1,
    length_penalty: float = 1.0,
) -> Generate:
    """Returns a pure function, to be jitted, over the parameters of the model that `build` makes.

    A row is the targets without a start token, up to `max_length` of them, with its end-of-sequence
    token if it has got one, then 0. With one beam the search is greedy and has no length penalty;
    with more it is as in `beam_search`. The encoder runs once, and each token costs one position of
    the decoder. Nothing is dropped. Raises UserError for numbers that cannot work, and in a call
    for a packed batch.
    """
    cfg.check()
    for name, value in (("max_length", max_length), ("num_beams", num_beams)):
        if value < 1:
            raise UserError(f"{name}={value}: must be at least 1.")
    _, call = functional(lambda key: T5(key, cfg, make_mlp))

    def search(model: T5, inputs_BS: jax.Array) -> jax.Array:
        memory = read_inputs(model, inputs_BS)
        sizes = {"batch_size": inputs_BS.shape[0], "max_length": max_length}
        past = empty_past(model, num_beams=num_beams, **sizes)

        def step(past: Past, tokens_BN: jax.Array, position: jax.Array) -> tuple[jax.Array, Past]:
            return decode_step(model, memory, past, tokens_BN, position)

        if num_beams == 1:
            return greedy_search(step, past, **sizes)
        return beam_search(step, past, num_beams=num_beams, length_penalty=length_penalty, **sizes)

    def generate(params: Params, batch: Mapping[str, Any]) -> jax.Array:
        if "inputs_segment_ids" in batch:
            raise UserError(
                "inputs_segment_ids: targets are generated for one input in each row; give inputs "
                "that are not packed."
            )
        return call(params, search, batch["inputs"])

    return generate
