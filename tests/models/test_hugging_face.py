"""Weights in transformers' files: bit for bit there and back, and every tensor accounted for."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from models.api import build
from models.errors import UserError
from models.flops import flatten_paths
from models.hugging_face.export import export
from models.hugging_face.load import load
from models.hugging_face.names import NAMES
from models.presets import CRAMMED_BERT
from tests.models.encoder_cases import BERT, VIT
from tests.models.helpers import TINY_T5, random_params

T5 = replace(TINY_T5, num_decoder_layers=3)
BERT_MLM = replace(BERT, pooler=False)
VIT_PLAIN = replace(VIT, label_smoothing=0.0)
CASES = {
    "t5_gated_untied": T5,
    "t5_gated_tied": replace(T5, tied_logits=True, activation="gelu"),
    "t5_relu_tied": replace(T5, gated=False, activation="relu", tied_logits=True, dropout=0.1),
    "t5_ungated_untied": replace(T5, gated=False, norm_epsilon=1e-5, param_dtype="bfloat16"),
    "bert": BERT,
    "bert_mlm": replace(BERT_MLM, activation="gelu_tanh", param_dtype="bfloat16"),
    "bert_pooler": replace(BERT, mlm_head="none", dropout=0.1, norm_epsilon=1e-5),
    "vit": VIT_PLAIN,
    "vit_two_classes": replace(VIT_PLAIN, num_classes=2, channels=1, param_dtype="float16"),
}


@pytest.fixture(scope="module")
def params_of():
    return {name: random_params(build(cfg)) for name, cfg in CASES.items()}


def assert_same_bits(ours, theirs):
    ours, theirs = flatten_paths(ours), flatten_paths(theirs)
    assert ours.keys() == theirs.keys()
    for path in ours:
        assert ours[path].dtype == theirs[path].dtype, path
        assert ours[path].shape == theirs[path].shape, path
        assert ours[path].tobytes() == theirs[path].tobytes(), path


def edit(folder, change):
    """Rewrites the tensors of a folder: `change` alters the dict from name to array."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file({name: np.ascontiguousarray(a) for name, a in tensors.items()}, file)


def edit_config(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.fixture
def folder(request, tmp_path, params_of):
    """A folder with the exported case that the test names, BERT with head and pooler if none."""
    name = getattr(request, "param", "bert")
    export(CASES[name], params_of[name], tmp_path / name)
    return tmp_path / name


def of_case(name):
    return pytest.mark.parametrize("folder", [name], indirect=True)


@pytest.mark.parametrize("name", CASES)
def test_round_trip_is_bit_exact(name, params_of, tmp_path):
    export(CASES[name], params_of[name], tmp_path)
    cfg, params = load(tmp_path)
    assert cfg == CASES[name]
    assert_same_bits(params, params_of[name])


@pytest.mark.parametrize("name", CASES)
def test_table_has_each_parameter_once(name):
    paths = [row.path for row in NAMES[type(CASES[name])].rows(CASES[name])]
    expected = flatten_paths(jax.eval_shape(build(CASES[name]).init, jax.random.key(0)))
    assert sorted(paths) == sorted(expected)


def test_pruned_weights_are_plain_zeros(params_of, tmp_path):
    params = jax.tree.map(np.copy, params_of["bert_mlm"])
    params["encoder"]["layers"]["mlp"]["wi"][1, 2, 3:5] = 0
    export(CASES["bert_mlm"], params, tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        tensor = file.get_tensor("bert.encoder.layer.1.intermediate.dense.weight")
    assert np.array_equal(np.argwhere(tensor == 0), [[3, 2], [4, 2]])


def test_jax_arrays_are_exported_alike(params_of, tmp_path):
    export(BERT, jax.tree.map(jnp.asarray, params_of["bert"]), tmp_path)
    assert_same_bits(load(tmp_path)[1], params_of["bert"])


def test_a_given_configuration_chooses_precision_and_needs_no_config_file(folder, params_of):
    (folder / "config.json").unlink()
    wanted = replace(BERT, param_dtype="bfloat16", dropout=0.3)
    cfg, params = load(folder / "model.safetensors", wanted)
    assert cfg == wanted
    assert_same_bits(params, jax.tree.map(lambda a: a.astype(jnp.bfloat16), params_of["bert"]))
    with pytest.raises(UserError, match=r"config\.json: no such file, and no configuration"):
        load(folder)


def test_a_given_configuration_must_compute_the_same(folder):
    with pytest.raises(UserError, match=r"num_heads=3, norm_epsilon=0.1: the file has num_heads=2"):
        load(folder, replace(BERT, num_heads=3, norm_epsilon=0.1))
    with pytest.raises(UserError, match="T5Config given: the file is of BertConfig"):
        load(folder, T5)


def test_several_files_behind_an_index(folder, params_of):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for file, part in {"one.safetensors": names[::2], "two.safetensors": names[1::2]}.items():
        save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_same_bits(load(folder)[1], params_of["bert"])

    index.write_text(json.dumps({"weight_map": weight_map | {"more": "one.safetensors"}}))
    with pytest.raises(UserError, match="more is in none of its files"):
        load(folder)
    index.write_text(json.dumps({"weight_map": {names[0]: "one.safetensors"}}))
    with pytest.raises(UserError, match=rf"one\.safetensors: holds {names[2]}, which"):
        load(folder)
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / "two.safetensors").unlink()
    with pytest.raises(UserError, match=r"two\.safetensors: no such file"):
        load(folder)
    index.write_text("{")
    with pytest.raises(UserError, match=r"index\.json: cannot be read"):
        load(folder)


def test_older_names_of_bert(folder, params_of):
    def older(tensors):
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            tensors[old.replace("LayerNorm.bias", "LayerNorm.beta")] = tensors.pop(name)
        tensors["bert.embeddings.position_ids"] = np.arange(13)[None]

    edit(folder, older)
    assert_same_bits(load(folder)[1], params_of["bert"])
    edit(folder, lambda tensors: tensors.update({"bert.embeddings.LayerNorm.bias": np.zeros(6)}))
    with pytest.raises(UserError, match=r"LayerNorm\.\w+ and \S+LayerNorm\.\w+ both name one"):
        load(folder)


@of_case("vit")
def test_newer_names_of_vit(folder, params_of):
    def newer(tensors):
        for name in list(tensors):
            new = name.replace("encoder.layer.", "layers.")
            new = new.replace("attention.output.dense", "attention.o_proj")
            new = new.replace("output.dense", "mlp.fc2").replace("intermediate.dense", "mlp.fc1")
            for kind in ("query", "key", "value"):
                new = new.replace(f"attention.attention.{kind}", f"attention.{kind[0]}_proj")
            tensors[new] = tensors.pop(name)
        assert "vit.layers.2.mlp.fc2.bias" in tensors

    edit(folder, newer)
    assert_same_bits(load(folder)[1], params_of["vit"])


@pytest.mark.parametrize(
    ("folder", "tied", "other"),
    [
        ("bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
        ("bert", "cls.predictions.bias", "cls.predictions.decoder.bias"),
        ("t5_relu_tied", "shared.weight", "lm_head.weight"),
        ("t5_gated_untied", "shared.weight", "decoder.embed_tokens.weight"),
    ],
    indirect=["folder"],
)
def test_tied_tensors_may_be_there_twice_if_equal(folder, tied, other, params_of):
    edit(folder, lambda tensors: tensors.update({other: tensors[tied].copy()}))
    assert_same_bits(load(folder)[1], params_of[folder.name])
    edit(folder, lambda tensors: tensors.pop(tied))  # either name will do
    assert_same_bits(load(folder)[1], params_of[folder.name])
    edit(folder, lambda tensors: tensors.update({tied: tensors[other] + 1}))
    with pytest.raises(UserError, match=f"{tied} and {other} differ"):
        load(folder)


KEY = "encoder.block.1.layer.0.SelfAttention.k.weight"


@of_case("t5_gated_untied")
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: t.pop(KEY), f"{KEY} is missing, which encoder/layers/attention/key needs"),
        (lambda t: t.update({"lm_haed.weight": t.pop("lm_head.weight")}), r"Did you mean lm_haed"),
        (lambda t: t.update({"a": t[KEY], "b": t[KEY]}), r"tensor a \(and 1 more\) is no part"),
        (lambda t: t.update({KEY.replace("1", "2", 1): t[KEY]}), r"encoder\.block\.2\S+ is no"),
        (lambda t: t.update({KEY: t[KEY].T}), rf"{KEY} has shape \(6, 8\), but .*needs \(8, 6\)"),
        (lambda t: t.update({KEY: t[KEY].astype("f8")}), f"{KEY} is F64, must be one of F32"),
        (lambda t: t.update({KEY: t[KEY].astype("f2")}), f"F32 and {KEY} F16"),
    ],
    ids=["missing", "misspelled", "extra", "extra_layer", "shape", "kind", "mixed"],
)
def test_a_wrong_tensor_is_named(folder, change, text):
    edit(folder, change)
    with pytest.raises(UserError, match=text) as error:
        load(folder)
    assert str(folder) in str(error.value)


def test_damaged_files(folder, tmp_path):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:100], b"", b"\xff" * 64):
        file.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model\.safetensors: damaged"):
            load(folder)
    file.write_bytes(whole)
    (folder / "config.json").write_bytes(b"[1")
    with pytest.raises(UserError, match=r"config\.json: cannot be read"):
        load(folder)
    with pytest.raises(UserError, match="no such file or folder"):
        load(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"holds neither model\.safetensors nor"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("folder", "fields", "text"),
    [
        ("bert", {"model_type": "bart"}, "model_type=bart: .*Did you mean bert"),
        ("bert", {"hidden_act": "silu"}, "hidden_act=silu: must be one of"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type=relative"),
        ("bert", {"is_decoder": True}, "is_decoder=True: our bert has is_decoder=False only"),
        ("bert", {"tie_word_embeddings": False}, "tie_word_embeddings=False: our bert has"),
        ("bert", {"attention_probs_dropout_prob": 0.5}, "attention_probs_dropout_prob=0.5"),
        ("bert", {"hidden_size": None}, "hidden_size: missing"),
        ("bert", {"hidden_size": "6"}, "hidden_size='6': must be a number"),
        ("bert", {"num_attention_heads": 4}, "model_dim=6, num_heads=4"),
        ("t5_relu_tied", {"feed_forward_proj": "gated-silu"}, "feed_forward_proj=gated-silu"),
        ("t5_relu_tied", {"decoder_start_token_id": 2}, "decoder_start_token_id=2: our t5"),
        ("vit", {"qkv_bias": False}, "qkv_bias=False: our vit has qkv_bias=True only"),
        ("vit", {"image_size": [6, 4]}, r"image_size=\[6, 4\]: our images and patches are squares"),
    ],
    indirect=["folder"],
)
def test_a_feature_that_we_do_not_have_names_its_field(folder, fields, text):
    edit_config(folder, **fields)
    with pytest.raises(UserError, match=text) as error:
        load(folder)
    assert "config.json" in str(error.value)


@of_case("t5_ungated_untied")
def test_t5_may_say_in_two_ways_that_logits_are_not_tied(folder):
    edit_config(folder, tie_word_embeddings=True, scale_decoder_outputs=False)
    cfg, _ = load(folder)
    assert cfg == CASES["t5_ungated_untied"]
    # One that says neither is tied, and then the two tables must be equal.
    edit_config(folder, tie_word_embeddings=None, scale_decoder_outputs=None)
    with pytest.raises(UserError, match=r"shared\.weight and lm_head\.weight differ"):
        load(folder)


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        (CRAMMED_BERT, "pre_norm=True: transformers has no class of such a model"),
        (replace(BERT, positions="scaled_sinusoidal"), "positions=scaled_sinusoidal"),
        (replace(BERT, num_token_types=None), "num_token_types=None"),
        (replace(BERT, mlm_head="linear"), "mlm_head=linear"),
        (replace(BERT, mlm_head="none", pooler=False), "mlm_head=none, pooler=False"),
        (replace(VIT, pooling="mean"), "pooling=mean"),
    ],
)
def test_export_of_what_transformers_does_not_have(cfg, text, tmp_path):
    with pytest.raises(UserError, match=text):
        export(cfg, {}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_export_of_parameters_of_another_model(params_of, tmp_path):
    params = params_of["bert"]
    with pytest.raises(UserError, match="parameter pooler: is missing"):
        export(BERT, params_of["bert_mlm"], tmp_path)
    with pytest.raises(UserError, match="parameter pooler: is no part"):
        export(BERT_MLM, params, tmp_path)
    with pytest.raises(UserError, match=r"encoder/layers/\S+: has shape \(3, .*needs \(2, "):
        export(replace(BERT, num_layers=2), params, tmp_path)


def test_export_where_nothing_can_be_written(params_of, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: cannot be written"):
        export(BERT, params_of["bert"], tmp_path / "file")
