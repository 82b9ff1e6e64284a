"""A head for classes or a score on the encoder of BERT or ViT, as one more model."""

from typing import Any

import jax
import jax.numpy as jnp

from models import api
from models.config import BertConfig, HeadConfig, ModelConfig, ViTConfig
from models.errors import UserError
from models.functional import Params
from models.layers import MakeMlp, dense, dropout, split_key
from models.losses import Sums, token_losses, weighted_sums

# Shape suffixes: B batch, T positions, D width, H width of the head, N classes.

# Where the head lies beside the parameters of the encoder.
HEAD = "task_head"
# Matrices of pre-training's own heads, which a task does not use.
_UNREAD = ("head", "token_embedding", "classifier")


def build_classifier(
    cfg: ModelConfig, head: HeadConfig, make_mlp: MakeMlp | None = None
) -> api.Model:
    """Returns the model of `cfg` with a head: `apply` gives outputs, float32 (B, N).

    A batch has what the encoder reads, `labels` (B,) and `weights` (B,). The parameters are those
    of the model that `api.build` makes and, under `task_head`, the head's; what only pre-training
    uses stays as it is. Raises UserError for a model without such an encoder.
    """
    if not isinstance(cfg, BertConfig | ViTConfig):
        raise UserError("head: only BERT and ViT take one; T5 answers in words.")
    head.check()
    base = api.build(cfg, make_mlp)
    encode = api.build_encoder(cfg, make_mlp)

    def init(key: jax.Array) -> Params:
        base_key, hidden_key, out_key = jax.random.split(key, 3)
        normal = jax.nn.initializers.normal(0.02)
        width, dtype = cfg.model_dim, cfg.param_dtype
        params: dict[str, Any] = {}
        if head.hidden_dim:
            params["hidden"] = normal(hidden_key, (width, head.hidden_dim), dtype)
            params["hidden_bias"] = jnp.zeros(head.hidden_dim, dtype)
            width = head.hidden_dim
        params["output"] = normal(out_key, (width, head.num_outputs), dtype)
        params["output_bias"] = jnp.zeros(head.num_outputs, dtype)
        return {**base.init(base_key), HEAD: params}

    def apply(params, batch, *, key=None, keep=None):
        encoder_key, in_key, out_key = split_key(key, 3)
        own = params[HEAD]
        trunk = {name: value for name, value in params.items() if name != HEAD}
        encoded = encode(trunk, batch, key=encoder_key, keep=keep)
        x_BD = encoded.pooled_BD
        if head.pooling == "mean":
            x_BD = _mean(encoded.hidden_BTD, batch.get("tokens"))
        x_BD = x_BD.astype(jnp.float32)
        if head.hidden_dim:
            x_BD = dropout(x_BD, cfg.dropout, in_key)
            x_BD = jnp.tanh(dense(x_BD, own["hidden"], own["hidden_bias"]))
        return dense(dropout(x_BD, cfg.dropout, out_key), own["output"], own["output_bias"])

    def losses(params, batch, *, key=None, keep=None, per_example=False) -> Sums:
        outputs_BN, labels_B = apply(params, batch, key=key, keep=keep), batch["labels"]
        if head.num_outputs == 1:
            error_B = jnp.square(outputs_BN[:, 0] - labels_B)
            values = {"loss": error_B, "squared_error": error_B}
        else:
            values = token_losses(outputs_BN, labels_B.astype(jnp.int32))
        return weighted_sums(values, batch["weights"], per_example=per_example)

    def forward_flops(shapes: api.Shapes) -> dict[str, int]:
        flops = {
            path: 0 if path in _UNREAD else count
            for path, count in base.forward_flops(shapes).items()
        }
        batch = shapes["labels"][0]
        width = cfg.model_dim
        if head.hidden_dim:
            flops[f"{HEAD}/hidden"] = 2 * batch * width * head.hidden_dim
            width = head.hidden_dim
        return flops | {f"{HEAD}/output": 2 * batch * width * head.num_outputs}

    return api.Model(init, apply, losses, forward_flops, base.attention_kernels)


def _mean(hidden_BTD: jax.Array, tokens_BT: jax.Array | None) -> jax.Array:
    """Returns the mean state (B, D) over all positions but padding."""
    if tokens_BT is None:
        return jnp.mean(hidden_BTD, axis=1)
    weights_BT1 = (tokens_BT != 0).astype(hidden_BTD.dtype)[:, :, None]
    return jnp.sum(hidden_BTD * weights_BT1, axis=1) / jnp.sum(weights_BT1, axis=1)
