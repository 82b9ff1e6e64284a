"""Which tensor of transformers is which parameter of ours: one row per kind of tensor."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from models.config import BertConfig, ModelConfig, T5Config, ViTConfig

Shape = tuple[int, ...]


class Row(NamedTuple):
    """One parameter and what it is called and how it lies in a file of transformers.

    A parameter under a component `layers` is stacked over layers, and each of its layers is a
    tensor of its own in the file. Shapes and axes are those of one layer.
    """

    # our path
    path: str
    # their names, `*` for the number of a layer; the first is the one that is written, and all that
    # a file has must be equal
    names: tuple[str, ...]
    # what ours is cut into first; None leaves it as it is
    view: Shape | None = None
    # which of these axes each axis of theirs is; None leaves them in order
    axes: tuple[int, ...] | None = None

    @property
    def is_stacked(self) -> bool:
        """Whether the parameter holds all layers on axis 0."""
        return "layers" in self.path.split("/")

    def their_shape(self, shape: Shape) -> Shape:
        """Returns the shape in the file of a parameter of this shape."""
        view = self.view or shape
        return view if self.axes is None else tuple(view[axis] for axis in self.axes)

    def to_theirs(self, array: np.ndarray) -> np.ndarray:
        """Turns a parameter into the tensor of the file; a view where that is possible."""
        array = array.reshape(self.view or array.shape)
        return array if self.axes is None else array.transpose(self.axes)

    def to_ours(self, array: np.ndarray, shape: Shape) -> np.ndarray:
        """Turns a tensor of the file into a parameter of this shape."""
        if self.axes is not None:
            array = array.transpose(np.argsort(self.axes))
        return array.reshape(shape)


class Names(NamedTuple):
    """How transformers names the tensors of one family of models."""

    # (cfg) -> a row for each parameter that such a model has
    rows: Callable[..., list[Row]]
    # (pattern, replacement), applied in turn: other spellings of a name -> the one in the rows
    spellings: tuple[tuple[str, str], ...] = ()
    # patterns of names that carry nothing which our model has
    left_out: tuple[str, ...] = ()

    def spell(self, name: str) -> str:
        """Returns the spelling of a name that the rows have."""
        for pattern, replacement in self.spellings:
            name = re.sub(pattern, replacement, name)
        return name

    def is_left_out(self, name: str) -> bool:
        """Whether a tensor of this name (as the rows spell it) is not ours to read."""
        return any(re.fullmatch(pattern, name) for pattern in self.left_out)


def _t5_rows(cfg: T5Config) -> list[Row]:
    shared = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    if cfg.tied_logits:
        rows = [Row("token_embedding", (*shared, "lm_head.weight"))]
    else:
        rows = [Row("token_embedding", shared), _matrix("logits", "lm_head")]
    attention = {"q": "query", "k": "key", "v": "value", "o": "out"}
    mlp = {"wi_0": "wi_gate", "wi_1": "wi_up"} if cfg.gated else {"wi": "wi"}
    # The sublayers of each layer in order: theirs, ours, and the matrices of both.
    self_attention = ("SelfAttention", "attention", attention)
    cross_attention = ("EncDecAttention", "cross_attention", attention)
    feedforward = ("DenseReluDense", "mlp", mlp | {"wo": "wo"})
    for side, sublayers in {
        "encoder": [self_attention, feedforward],
        "decoder": [self_attention, cross_attention, feedforward],
    }.items():
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        rows.append(Row(f"{side}/relative_bias", (bias,)))
        rows.append(Row(f"{side}/final_norm", (f"{side}.final_layer_norm.weight",)))
        for index, (theirs, ours, matrices) in enumerate(sublayers):
            module, path = f"{side}.block.*.layer.{index}", f"{side}/layers/{ours}"
            rows.append(Row(f"{path}_norm", (f"{module}.layer_norm.weight",)))
            rows += [
                _matrix(f"{path}/{our}", f"{module}.{theirs}.{their}")
                for their, our in matrices.items()
            ]
    return rows


def _bert_rows(cfg: BertConfig) -> list[Row]:
    table = ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")
    embeddings, layer = "bert.embeddings", "bert.encoder.layer.*"
    rows = [
        Row("token_embedding", table),
        Row("position_embedding", (f"{embeddings}.position_embeddings.weight",)),
        Row("token_type_embedding", (f"{embeddings}.token_type_embeddings.weight",)),
        *_norm("embedding_norm", f"{embeddings}.LayerNorm"),
        *_linear("encoder/layers/attention/query", f"{layer}.attention.self.query"),
        *_linear("encoder/layers/attention/key", f"{layer}.attention.self.key"),
        *_linear("encoder/layers/attention/value", f"{layer}.attention.self.value"),
        *_linear("encoder/layers/attention/out", f"{layer}.attention.output.dense"),
        *_norm("encoder/layers/attention_norm", f"{layer}.attention.output.LayerNorm"),
        *_linear("encoder/layers/mlp/wi", f"{layer}.intermediate.dense"),
        *_linear("encoder/layers/mlp/wo", f"{layer}.output.dense"),
        *_norm("encoder/layers/mlp_norm", f"{layer}.output.LayerNorm"),
    ]
    if cfg.pooler:
        rows += _linear("pooler", "bert.pooler.dense")
    if cfg.mlm_head == "transform":
        rows += _linear("head", "cls.predictions.transform.dense")
        rows += _norm("head_norm", "cls.predictions.transform.LayerNorm")
        rows.append(Row("logits_bias", ("cls.predictions.bias", "cls.predictions.decoder.bias")))
    return rows


def _vit_rows(cfg: ViTConfig) -> list[Row]:
    width, size, embeddings = cfg.model_dim, cfg.patch_size, "vit.embeddings"
    patches, layer = f"{embeddings}.patch_embeddings.projection", "vit.encoder.layer.*"
    return [
        # Our patches are rows of pixels of channels; a convolution's kernel starts (out, channel).
        Row(
            "patch_embedding",
            (f"{patches}.weight",),
            view=(size, size, cfg.channels, width),
            axes=(3, 2, 0, 1),
        ),
        Row("patch_embedding_bias", (f"{patches}.bias",)),
        Row("class_token", (f"{embeddings}.cls_token",), view=(1, 1, width)),
        Row(
            "position_embedding",
            (f"{embeddings}.position_embeddings",),
            view=(1, cfg.num_tokens, width),
        ),
        *_norm("encoder/layers/attention_norm", f"{layer}.layernorm_before"),
        *_linear("encoder/layers/attention/query", f"{layer}.attention.attention.query"),
        *_linear("encoder/layers/attention/key", f"{layer}.attention.attention.key"),
        *_linear("encoder/layers/attention/value", f"{layer}.attention.attention.value"),
        *_linear("encoder/layers/attention/out", f"{layer}.attention.output.dense"),
        *_norm("encoder/layers/mlp_norm", f"{layer}.layernorm_after"),
        *_linear("encoder/layers/mlp/wi", f"{layer}.intermediate.dense"),
        *_linear("encoder/layers/mlp/wo", f"{layer}.output.dense"),
        *_norm("encoder/final_norm", "vit.layernorm"),
        *_linear("classifier", "classifier"),
    ]


def _matrix(path: str, module: str) -> Row:
    """Torch keeps matrices (out, in)."""
    return Row(path, (f"{module}.weight",), axes=(1, 0))


def _linear(path: str, module: str) -> list[Row]:
    return [_matrix(path, module), Row(f"{path}_bias", (f"{module}.bias",))]


def _norm(path: str, module: str) -> list[Row]:
    return [
        Row(f"{path}/scale", (f"{module}.weight",)),
        Row(f"{path}/bias", (f"{module}.bias",)),
    ]


NAMES: dict[type[ModelConfig], Names] = {
    T5Config: Names(
        _t5_rows,
        # Early files have a table that the model never used.
        left_out=(
            r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
        ),
    ),
    BertConfig: Names(
        _bert_rows,
        spellings=(
            # A model without a head leaves the prefix away.
            (r"^(?!bert\.|cls\.)", "bert."),
            # Files that were turned from TensorFlow's, bert-base-uncased among them.
            (r"LayerNorm\.gamma$", "LayerNorm.weight"),
            (r"LayerNorm\.beta$", "LayerNorm.bias"),
        ),
        # Counts from 0 up, and the head that tells whether one sentence follows another.
        left_out=(r"bert\.embeddings\.position_ids", r"cls\.seq_relationship\.(weight|bias)"),
    ),
    ViTConfig: Names(
        _vit_rows,
        spellings=(
            (r"^(?!vit\.|classifier\.)", "vit."),
            # transformers 5 in memory; its files keep to the names before it.
            (r"^vit\.layers\.", "vit.encoder.layer."),
            (r"\.attention\.q_proj\.", ".attention.attention.query."),
            (r"\.attention\.k_proj\.", ".attention.attention.key."),
            (r"\.attention\.v_proj\.", ".attention.attention.value."),
            (r"\.attention\.o_proj\.", ".attention.output.dense."),
            (r"\.mlp\.fc1\.", ".intermediate.dense."),
            (r"\.mlp\.fc2\.", ".output.dense."),
        ),
    ),
}
