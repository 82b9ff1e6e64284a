"""Files to transformers itself and back from it."""

from dataclasses import replace

import pytest

from models.api import build, build_encoder
from models.config import T5Config, ViTConfig
from models.flops import flatten_paths
from models.hugging_face.export import export
from models.hugging_face.load import load
from tests.models.encoder_cases import BERT, VIT, bert_batch, vit_batch
from tests.models.helpers import TINY_T5, assert_trees_near, random_params, random_tokens

pytestmark = pytest.mark.slow

T5 = replace(TINY_T5, num_decoder_layers=3)
VIT_PLAIN = replace(VIT, label_smoothing=0.0)
# Name -> configuration, and the class of transformers that has such a model.
CASES = {
    "t5_gated_untied": (T5, "T5ForConditionalGeneration"),
    "t5_exact_tied": (
        replace(T5, tied_logits=True, activation="gelu", norm_epsilon=1e-3),
        "T5ForConditionalGeneration",
    ),
    "t5_relu_tied": (
        replace(T5, gated=False, activation="relu", tied_logits=True),
        "T5ForConditionalGeneration",
    ),
    "t5_ungated_untied": (replace(T5, gated=False), "T5ForConditionalGeneration"),
    "bert": (BERT, "BertForPreTraining"),
    "bert_mlm": (replace(BERT, pooler=False, activation="gelu_tanh"), "BertForMaskedLM"),
    "bert_pooler": (
        replace(BERT, mlm_head="none", activation="relu", norm_epsilon=1e-3),
        "BertModel",
    ),
    "vit": (VIT_PLAIN, "ViTForImageClassification"),
    "vit_two_classes": (replace(VIT_PLAIN, num_classes=2, channels=1), "ViTForImageClassification"),
}


@pytest.mark.parametrize("name", CASES)
def test_transformers_loads_what_we_write_and_we_what_it_writes(name, tmp_path):
    pytest.importorskip("torch", reason="needs the extra `parity`")
    transformers = pytest.importorskip("transformers", reason="needs the extra `parity`")
    cfg, class_name = CASES[name]
    params = random_params(build(cfg))
    export(cfg, params, tmp_path / "ours")
    model, report = getattr(transformers, class_name).from_pretrained(
        tmp_path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], (kind, report[kind])
    assert model.config.architectures == [class_name]
    ours, theirs = outputs(cfg, params, model.eval())
    assert_trees_near(ours, theirs, 1e-5)

    model.save_pretrained(tmp_path / "theirs")
    again, back = load(tmp_path / "theirs")
    assert again == cfg
    sent, back = flatten_paths(params), flatten_paths(back)
    assert sent.keys() == back.keys()
    for path in sent:
        assert sent[path].tobytes() == back[path].tobytes(), path


def outputs(cfg, params, model):
    """Returns what we and transformers make of one batch: logits, or hidden and pooled states."""
    import torch

    if isinstance(cfg, T5Config):
        batch = {"inputs": random_tokens((9, 17), 23), "targets": random_tokens((11, 11), 23, 1)}
        theirs = model(
            input_ids=torch.from_numpy(batch["inputs"]).long(),
            attention_mask=torch.from_numpy(batch["inputs"] != 0).long(),
            labels=torch.from_numpy(batch["targets"]).long(),
        )
        return build(cfg).apply(params, batch), theirs.logits.detach().numpy()
    if isinstance(cfg, ViTConfig):
        batch = {"images": vit_batch()["images"][..., : cfg.channels]}
        theirs = model(torch.from_numpy(batch["images"]).permute(0, 3, 1, 2))
        return build(cfg).apply(params, batch), theirs.logits.detach().numpy()
    batch = {name: bert_batch()[name] for name in ("tokens", "token_types")}
    theirs = model(
        input_ids=torch.from_numpy(batch["tokens"]).long(),
        attention_mask=torch.from_numpy(batch["tokens"] != 0).long(),
        token_type_ids=torch.from_numpy(batch["token_types"]).long(),
    )
    if cfg.mlm_head == "none":
        states = (theirs.last_hidden_state, theirs.pooler_output)
        return tuple(build_encoder(cfg)(params, batch)), tuple(s.detach().numpy() for s in states)
    logits = theirs.prediction_logits if cfg.pooler else theirs.logits
    return build(cfg).apply(params, batch), logits.detach().numpy()
