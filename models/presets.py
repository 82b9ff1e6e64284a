"""Published sizes, and small ones that a CPU trains in minutes; reading them needs no JAX."""

from dataclasses import replace

from models.config import BertConfig, T5Config, ViTConfig

# bert-base-uncased (Devlin et al. 2019): 109,482,240 parameters without its MLM head.
BERT_BASE = BertConfig()

# The crammed form of "No Train No Gain" (Kaddour et al. 2023, arXiv 2307.06440): 120,179,713.
CRAMMED_BERT = BertConfig(
    vocab_size=32768,
    max_length=128,
    num_layers=16,
    mlp_dim=1536,
    gated=True,
    use_bias=False,
    pre_norm=True,
    positions="scaled_sinusoidal",
    num_token_types=None,
    pooler=False,
    mlm_head="linear",
)

# The form that fast feedforward layers were put into (Belcak and Wattenhofer 2023, arXiv
# 2311.10770): a plain feedforward block, and no head before the decoder.
CRAMMED_BERT_UNGATED = replace(CRAMMED_BERT, mlp_dim=3072, gated=False, mlm_head="none")

# Like CRAMMED_BERT, for a vocabulary of 4,096 and the demo corpus.
CRAMMED_BERT_DEMO = replace(
    CRAMMED_BERT, vocab_size=4096, model_dim=128, mlp_dim=256, num_heads=4, num_layers=4
)

# Like BERT_BASE, for a vocabulary of 4,096 and the demo corpus.
BERT_DEMO = replace(
    BERT_BASE,
    vocab_size=4096,
    max_length=128,
    model_dim=128,
    mlp_dim=512,
    num_heads=4,
    num_layers=4,
)

# ViT-B/16 and ViT-S/16 at 224 x 224: 86,567,656 and 22,050,664 parameters.
VIT_B16 = ViTConfig()
VIT_S16 = ViTConfig(model_dim=384, mlp_dim=1536, num_heads=6)

# For scikit-learn's digits, 8 x 8 pixels of one channel.
VIT_DEMO = ViTConfig(
    image_size=8,
    patch_size=2,
    channels=1,
    num_classes=10,
    model_dim=64,
    mlp_dim=256,
    num_heads=4,
    num_layers=4,
)


def vit_of_scale(scale: float, base: ViTConfig = VIT_B16) -> ViTConfig:
    """Returns `base` with its layers' matrices holding `scale` times as many weights.

    The sizes of the grid of Frantar et al. 2024 (arXiv 2309.08520) are those of ViT-B's layers
    times 2^-7 ... 2; a sparse run starts from scale / (1 - sparsity). Depth and the number of heads
    stay, heads get the even width nearest to sqrt(scale) times theirs, and the feedforward block
    takes up what that rounding leaves, to within 0.5 %. How the paper rounded is not published.
    """
    head_dim = 2 * max(1, round(base.head_dim * scale**0.5 / 2))
    model_dim = head_dim * base.num_heads
    weights = scale * (4 * base.model_dim**2 + 2 * base.model_dim * base.mlp_dim)
    mlp_dim = round((weights - 4 * model_dim**2) / (2 * model_dim))
    return replace(base, model_dim=model_dim, mlp_dim=mlp_dim)


def t5_of_scale(scale: float, base: T5Config) -> T5Config:
    """Returns `base` with its layers' matrices holding `scale` times as many weights.

    As `vit_of_scale`, but that the feedforward block's width is a multiple of 8, and so is the
    width with four heads or more: then N:M patterns up to M = 8 fit. Off by a few percent at toy
    sizes, below 1 % from a width of 100 on.
    """
    layers = base.num_encoder_layers + base.num_decoder_layers
    # Query, key, value and output; a decoder's layer has them twice.
    attentions = layers + base.num_decoder_layers
    mlp_matrices = 3 if base.gated else 2

    def weights(model_dim: int, inner_dim: int, mlp_dim: int) -> int:
        attention = attentions * 4 * model_dim * inner_dim
        return attention + layers * mlp_matrices * model_dim * mlp_dim

    wanted = scale * weights(base.model_dim, base.num_heads * base.head_dim, base.mlp_dim)
    head_dim = 2 * max(1, round(base.head_dim * scale**0.5 / 2))
    inner_dim = head_dim * base.num_heads
    model_dim = round(base.model_dim * head_dim / base.head_dim)
    mlp_dim = (wanted - weights(model_dim, inner_dim, 0)) / weights(model_dim, 0, 1)
    return replace(
        base, model_dim=model_dim, head_dim=head_dim, mlp_dim=8 * max(1, round(mlp_dim / 8))
    )
