"""One interface to every model: pure functions over nested plain dicts."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax

from models import bert, t5, vit
from models.config import BertConfig, EncoderConfig, ModelConfig, T5Config, ViTConfig
from models.encoder import Encoded
from models.functional import Params, functional
from models.layers import MakeMlp
from models.losses import Sums

Batch = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]


class Apply(Protocol):
    """Computes the outputs of a batch; without a key nothing is random."""

    def __call__(
        self,
        params: Params,
        batch: Batch,
        *,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
    ) -> jax.Array: ...


class Losses(Protocol):
    """Computes the sums of a batch, or with `per_example` of each of its examples."""

    def __call__(
        self,
        params: Params,
        batch: Batch,
        *,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
        per_example: bool = False,
    ) -> Sums: ...


class Encode(Protocol):
    """Computes the states that heads are put on; without a key nothing is random."""

    def __call__(
        self,
        params: Params,
        batch: Batch,
        *,
        key: jax.Array | None = None,
        keep: jax.Array | None = None,
    ) -> Encoded: ...


class Model(NamedTuple):
    """A model as pure functions.

    `keep` (L,) is non-zero where a layer runs and zero where it is skipped, at no cost; None runs
    all. L counts all layers of the model, in the order in which they run.
    """

    # (key) -> nested dict of arrays in the parameter dtype, layers stacked under `layers`
    init: Callable[[jax.Array], Params]
    # (params, batch, *, key, keep) -> float32 logits at every position that has a target
    apply: Apply
    # (params, batch, *, key, keep, per_example) -> name -> (sum, count), float32; "loss" is what is
    # trained on, "nll" the plain cross-entropy, "accuracy" the rate of right predictions
    losses: Losses
    # (batch shapes) -> parameter path -> FLOPs of a forward pass in products with that parameter,
    # and "attention_scores" for the products without one
    forward_flops: Callable[[Shapes], dict[str, int]]
    # (batch shapes) -> path of an attention block -> the kernel it runs on this device
    attention_kernels: Callable[[Shapes], dict[str, str]]


def build(cfg: ModelConfig, make_mlp: MakeMlp | None = None) -> Model:
    """Returns the model that `cfg` describes; `make_mlp` replaces its feedforward block.

    Raises UserError where the configuration cannot work.
    """
    cfg.check()
    family = _FAMILIES[type(cfg)]
    init, call = functional(lambda key: family.module(key, cfg, make_mlp))

    def apply(params, batch, *, key=None, keep=None):
        return call(params, family.module.__call__, batch, key=key, keep=keep)

    def losses(params, batch, *, key=None, keep=None, per_example=False):
        return call(
            params, family.module.losses, batch, key=key, keep=keep, per_example=per_example
        )

    def forward_flops(shapes: Shapes) -> dict[str, int]:
        return family.forward_flops(cfg, jax.eval_shape(init, jax.random.key(0)), shapes)

    return Model(init, apply, losses, forward_flops, partial(family.attention_kernels, cfg))


def build_encoder(cfg: EncoderConfig, make_mlp: MakeMlp | None = None) -> Encode:
    """Returns the encoder of the model that `build` makes, over the same parameters."""
    cfg.check()
    module = _FAMILIES[type(cfg)].module
    _, call = functional(lambda key: module(key, cfg, make_mlp))

    def encode(params, batch, *, key=None, keep=None):
        return call(params, module.encode, batch, key=key, keep=keep)

    return encode


class _Family(NamedTuple):
    # (key, cfg, make_mlp) -> a module with __call__ and losses
    module: Any
    # (cfg, abstract params, batch shapes) -> path -> FLOPs
    forward_flops: Callable[[Any, Params, Shapes], dict[str, int]]
    # (cfg, batch shapes) -> path -> kernel
    attention_kernels: Callable[[Any, Shapes], dict[str, str]]


_FAMILIES: dict[type[ModelConfig], _Family] = {
    BertConfig: _Family(bert.Bert, bert.forward_flops, bert.attention_kernels),
    T5Config: _Family(t5.T5, t5.forward_flops, t5.attention_kernels),
    ViTConfig: _Family(vit.ViT, vit.forward_flops, vit.attention_kernels),
}
