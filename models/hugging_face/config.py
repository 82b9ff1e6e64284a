"""Between transformers' config.json and our configurations; reading it needs no JAX."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from models.config import BertConfig, EncoderConfig, ModelConfig, T5Config, ViTConfig
from models.errors import UserError, did_you_mean

# `model_type` -> our configuration.
FAMILIES: dict[str, type[ModelConfig]] = {"bert": BertConfig, "t5": T5Config, "vit": ViTConfig}

# Fields that differ in name alone, theirs -> ours.
_ENCODER_NAMES = {
    "hidden_size": "model_dim",
    "intermediate_size": "mlp_dim",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "layer_norm_eps": "norm_epsilon",
}
_NAMES: dict[type[ModelConfig], dict[str, str]] = {
    T5Config: {
        "vocab_size": "vocab_size",
        "d_model": "model_dim",
        "d_ff": "mlp_dim",
        "num_heads": "num_heads",
        "d_kv": "head_dim",
        "num_layers": "num_encoder_layers",
        "num_decoder_layers": "num_decoder_layers",
        "relative_attention_num_buckets": "relative_buckets",
        "relative_attention_max_distance": "relative_max_distance",
        "layer_norm_epsilon": "norm_epsilon",
        "dropout_rate": "dropout",
    },
    BertConfig: _ENCODER_NAMES
    | {
        "vocab_size": "vocab_size",
        "max_position_embeddings": "max_length",
        "type_vocab_size": "num_token_types",
        "hidden_dropout_prob": "dropout",
    },
    ViTConfig: _ENCODER_NAMES
    | {
        "image_size": "image_size",
        "patch_size": "patch_size",
        "num_channels": "channels",
        "hidden_dropout_prob": "dropout",
    },
}

# What transformers takes where a file does not say; sizes have no such value here.
_DEFAULTS: dict[type[ModelConfig], dict[str, Any]] = {
    T5Config: {
        "relative_attention_num_buckets": 32,
        "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6,
        "dropout_rate": 0.1,
    },
    BertConfig: {"layer_norm_eps": 1e-12, "type_vocab_size": 2, "hidden_dropout_prob": 0.1},
    ViTConfig: {"layer_norm_eps": 1e-12, "num_channels": 3, "hidden_dropout_prob": 0.0},
}

# Fields of theirs that our models know one value of.
_FIXED: dict[type[ModelConfig], dict[str, Any]] = {
    T5Config: {
        "is_encoder_decoder": True,
        "is_decoder": False,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    },
    BertConfig: {
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "pad_token_id": 0,
    },
    ViTConfig: {"qkv_bias": True},
}

# Fields of ours that transformers' classes know one value of.
_FIXED_OURS: dict[type[ModelConfig], dict[str, Any]] = {
    T5Config: {},
    BertConfig: {"pre_norm": False, "use_bias": True, "gated": False, "positions": "learned"},
    ViTConfig: {"pre_norm": True, "use_bias": True, "gated": False, "pooling": "class_token"},
}

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
# `feed_forward_proj` -> (gated, activation). transformers reads gated-gelu as the approximation by
# tanh, and has no other name than gelu_python for the exact one behind a gate.
_T5_MLPS = {
    "relu": (False, "relu"),
    "gelu": (False, "gelu"),
    "gelu_new": (False, "gelu_tanh"),
    "gated-relu": (True, "relu"),
    "gated-gelu": (True, "gelu_tanh"),
    "gated-gelu_new": (True, "gelu_tanh"),
    "gated-gelu_python": (True, "gelu"),
}


def from_json(given: Mapping[str, Any], names: Collection[str]) -> ModelConfig:
    """Returns the configuration of a model with these fields, and with tensors of these names.

    BERT's pooler and head are there if they have tensors: no field says so. Raises UserError for a
    field that is missing, has a value of the wrong kind or asks for what our models do not have.
    """
    model_type = given.get("model_type")
    if model_type not in FAMILIES:
        nearest = did_you_mean(str(model_type), FAMILIES)
        raise UserError(f"model_type={model_type}: must be one of {', '.join(FAMILIES)}.{nearest}")
    family = FAMILIES[model_type]
    for name, value in _FIXED[family].items():
        if given.get(name) not in (None, value):
            raise UserError(f"{name}={given[name]}: our {model_type} has {name}={value} only.")
    given = _DEFAULTS[family] | dict(given)
    if family is T5Config:
        special = _t5_from_json(given)
        if given.get("num_decoder_layers") is None:
            given["num_decoder_layers"] = given.get("num_layers")
    else:
        special = _encoder_from_json(given)
        if family is BertConfig:
            has_head = any(name.startswith("cls.predictions.") for name in names)
            special["mlm_head"] = "transform" if has_head else "none"
            special["pooler"] = any("pooler." in name for name in names)
        else:
            # transformers writes no labels if they are two, called as by default.
            special["num_classes"] = len(given.get("id2label") or (0, 1))
            given |= {name: _side(given, name) for name in ("image_size", "patch_size")}
    same = {ours: _number(given, theirs) for theirs, ours in _NAMES[family].items()}
    cfg = family(**same, **special)
    cfg.check()
    return cfg


def to_json(cfg: ModelConfig) -> dict[str, Any]:
    """Returns the fields of transformers' configuration, with the class that has such a model.

    Raises UserError, as `check_known`, where there is no such class.
    """
    check_known(cfg)
    family = type(cfg)
    fields_of = {theirs: getattr(cfg, ours) for theirs, ours in _NAMES[family].items()}
    fields_of |= _FIXED[family] | {"dtype": cfg.param_dtype}
    if isinstance(cfg, T5Config):
        mlp = (cfg.gated, cfg.activation)
        fields_of["feed_forward_proj"] = next(k for k, v in _T5_MLPS.items() if v == mlp)
        fields_of["tie_word_embeddings"] = cfg.tied_logits
        return fields_of | {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}
    assert isinstance(cfg, EncoderConfig)
    fields_of["hidden_act"] = next(k for k, v in _ACTIVATIONS.items() if v == cfg.activation)
    fields_of["attention_probs_dropout_prob"] = cfg.dropout
    if isinstance(cfg, ViTConfig):
        labels = {str(index): f"LABEL_{index}" for index in range(cfg.num_classes)}
        fields_of["id2label"] = labels
        fields_of["label2id"] = {label: int(index) for index, label in labels.items()}
        return fields_of | {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    assert isinstance(cfg, BertConfig)
    return fields_of | {"model_type": "bert", "architectures": [bert_class(cfg)]}


def bert_class(cfg: BertConfig) -> str:
    """Returns the class of transformers that has this pooler and this head.

    Raises UserError without either: no class is so by its configuration alone.
    """
    if cfg.mlm_head == "none":
        if not cfg.pooler:
            raise UserError("mlm_head=none, pooler=False: transformers' BERT has one or the other.")
        return "BertModel"
    return "BertForPreTraining" if cfg.pooler else "BertForMaskedLM"


def check_known(cfg: ModelConfig) -> None:
    """Raises UserError for the first field with a value that no class of transformers has."""
    for name, value in _FIXED_OURS[type(cfg)].items():
        if getattr(cfg, name) != value:
            raise UserError(
                f"{name}={getattr(cfg, name)}: transformers has no class of such a model, only with"
                f" {name}={value}."
            )
    if isinstance(cfg, BertConfig):
        if cfg.num_token_types is None:
            raise UserError("num_token_types=None: transformers' BERT always has token types.")
        if cfg.mlm_head == "linear":
            raise UserError("mlm_head=linear: transformers' BERT has transform or none.")


def check_same(cfg: ModelConfig, other: ModelConfig) -> None:
    """Raises UserError if `cfg` describes other outputs than `other`, which a file asks for."""
    if type(cfg) is not type(other):
        raise UserError(f"{type(cfg).__name__} given: the file is of {type(other).__name__}.")
    free = {field.name for field in fields(ModelConfig)} | {"z_loss", "label_smoothing"}
    names = [field.name for field in fields(cfg) if field.name not in free]
    wrong = [name for name in names if getattr(cfg, name) != getattr(other, name)]
    if wrong:
        given = ", ".join(f"{name}={getattr(cfg, name)}" for name in wrong)
        asked = ", ".join(f"{name}={getattr(other, name)}" for name in wrong)
        raise UserError(f"{given}: the file has {asked}.")


def _t5_from_json(given: Mapping[str, Any]) -> dict[str, Any]:
    mlp = given.get("feed_forward_proj", "relu")
    if mlp not in _T5_MLPS:
        nearest = did_you_mean(str(mlp), _T5_MLPS)
        known = ", ".join(_T5_MLPS)
        raise UserError(f"feed_forward_proj={mlp}: must be one of {known}.{nearest}")
    gated, activation = _T5_MLPS[mlp]
    # transformers 5 writes tie_word_embeddings=true always; what the other field says is what the
    # model does then. Before it, there was one field for both.
    tied = given.get("scale_decoder_outputs", given.get("tie_word_embeddings", True))
    return {"gated": gated, "activation": activation, "tied_logits": tied is not False}


def _encoder_from_json(given: Mapping[str, Any]) -> dict[str, Any]:
    activation = given.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        nearest = did_you_mean(str(activation), _ACTIVATIONS)
        known = ", ".join(_ACTIVATIONS)
        raise UserError(f"hidden_act={activation}: must be one of {known}.{nearest}")
    rate = given["hidden_dropout_prob"]
    attention_rate = given.get("attention_probs_dropout_prob", rate)
    if rate != attention_rate:
        raise UserError(
            f"hidden_dropout_prob={rate}, attention_probs_dropout_prob={attention_rate}: our models"
            f" have one rate of dropout; make them equal."
        )
    return {"activation": _ACTIVATIONS[activation]}


def _side(given: Mapping[str, Any], name: str) -> Any:
    """Returns the side of a square that may be given as two sides."""
    value = given.get(name)
    if not isinstance(value, list):
        return value
    if len(set(value)) != 1:
        raise UserError(f"{name}={value}: our images and patches are squares.")
    return value[0]


def _number(given: Mapping[str, Any], name: str) -> Any:
    value = given.get(name)
    if value is None:
        raise UserError(f"{name}: missing.")
    kinds = (float, int) if name.endswith(("_eps", "_epsilon", "_prob", "_rate")) else (int,)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise UserError(f"{name}={value!r}: must be a number.")
    return value
