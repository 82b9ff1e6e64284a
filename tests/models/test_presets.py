"""Published models have the published number of parameters, and the grid of ViT has its sizes."""

import subprocess
import sys

import jax
import pytest

from models import presets
from models.api import build
from models.config import BertConfig, T5Config, ViTConfig
from models.errors import UserError


def count(cfg, *without: str) -> int:
    params = jax.eval_shape(build(cfg).init, jax.random.key(0))
    kept = {name: part for name, part in params.items() if name not in without}
    return sum(leaf.size for leaf in jax.tree.leaves(kept))


def test_bert_base_with_pooler_and_without_mlm_head():
    mlm_head = ("head", "head_bias", "head_norm", "logits_bias")
    assert count(presets.BERT_BASE, *mlm_head) == 109_482_240
    assert count(presets.BERT_BASE) == 109_482_240 + 768 * 768 + 3 * 768 + 30522


def test_crammed_bert():
    assert count(presets.CRAMMED_BERT) == 120_179_713
    assert count(presets.CRAMMED_BERT, "head") == 120_179_713 - 768 * 768
    # A plain feedforward block of 3072 has 768 x 1536 more weights in each of 16 layers.
    ungated = 120_179_713 - 768 * 768 + 16 * 768 * (2 * 3072 - 3 * 1536)
    assert count(presets.CRAMMED_BERT_UNGATED) == ungated


def test_vit():
    assert count(presets.VIT_B16) == 86_567_656
    assert count(presets.VIT_S16) == 22_050_664


@pytest.mark.parametrize("exponent", range(-7, 3))
def test_vit_of_scale_has_the_weights_of_the_grid(exponent):
    cfg = presets.vit_of_scale(2.0**exponent)
    cfg.check()
    weights = cfg.num_layers * (4 * cfg.model_dim**2 + 2 * cfg.model_dim * cfg.mlp_dim)
    wanted = 12 * 12 * 768**2 * 2.0**exponent  # 84.9 million at scale 1
    assert abs(weights / wanted - 1) < 5e-3
    assert 3 < cfg.mlp_dim / cfg.model_dim < 5
    assert cfg.num_heads == 12 and cfg.num_layers == 12


@pytest.mark.parametrize("exponent", range(-7, 3))
def test_t5_of_scale_has_the_weights_of_the_grid(exponent):
    cfg = presets.t5_of_scale(2.0**exponent, T5Config())
    cfg.check()
    without = ("token_embedding", "logits")
    assert abs(count(cfg, *without) / count(T5Config(), *without) / 2.0**exponent - 1) < 0.01
    # N:M patterns up to M = 8 need it.
    assert cfg.mlp_dim % 8 == 0 and cfg.model_dim % 8 == 0
    assert (cfg.num_heads, cfg.num_encoder_layers) == (12, 12)


def test_t5_of_scale_one_is_the_base():
    assert presets.t5_of_scale(1.0, T5Config()) == T5Config()


def test_vit_of_scale_one_is_the_base():
    assert presets.vit_of_scale(1.0) == presets.VIT_B16
    assert presets.vit_of_scale(1.0, presets.VIT_S16) == presets.VIT_S16


@pytest.mark.parametrize(
    "cfg",
    [presets.BERT_DEMO, presets.CRAMMED_BERT_DEMO, presets.VIT_DEMO],
    ids=["bert", "crammed", "vit"],
)
def test_demo_sizes_are_small(cfg):
    assert count(cfg) < 1_500_000


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        (BertConfig(num_heads=7), "model_dim=768, num_heads=7"),
        (BertConfig(gated=True), "gated=True, use_bias=True"),
        (BertConfig(positions="rotary"), "positions=rotary: must be one of learned"),
        (BertConfig(mlm_head="liner"), r"mlm_head=liner: .*Did you mean linear\?"),
        (BertConfig(num_token_types=0), "num_token_types=0"),
        (BertConfig(activation="glu"), "activation=glu"),
        (BertConfig(num_layers=0), "num_layers=0"),
        (BertConfig(model_dim=9, num_heads=3, positions="scaled_sinusoidal"), "model_dim=9"),
        (ViTConfig(pooling="map"), "pooling=map: must be one of class_token, mean"),
        (ViTConfig(patch_size=15), "image_size=224, patch_size=15"),
        (ViTConfig(label_smoothing=1.0), "label_smoothing=1.0"),
        (ViTConfig(norm_epsilon=-1.0), "norm_epsilon=-1.0"),
    ],
)
def test_errors_name_the_field(cfg, text):
    with pytest.raises(UserError, match=text):
        cfg.check()


def test_heads_of_the_grid_have_even_widths():
    widths = [presets.vit_of_scale(2.0**exponent).head_dim for exponent in range(-7, 2)]
    assert widths == [6, 8, 12, 16, 22, 32, 46, 64, 90]


def test_importing_needs_no_jax():
    code = "import sys, models.presets; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
