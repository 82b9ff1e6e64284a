"""What a model is, as frozen dataclasses; reading them needs no JAX."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from math import log

from models.errors import UserError, did_you_mean

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
ATTENTION_IMPLEMENTATIONS = ("auto", "xla", "cudnn")
DTYPES = ("float32", "bfloat16", "float16")
MLM_HEADS = ("transform", "linear", "none")
POOLINGS = ("class_token", "mean")
POSITIONS = ("learned", "scaled_sinusoidal")
REMAT_POLICIES = ("none", "dots", "full")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What every model has: precision, memory, regularisation, and how its layers are run."""

    # Probability that a value is dropped; drawn only where a key is given to the model.
    dropout: float = 0.0
    # Dtype in which parameters are kept and updated.
    param_dtype: str = "float32"
    # Dtype of matrix products and activations; softmax, norms and losses are always float32.
    compute_dtype: str = "float32"
    # What the backward pass computes again: nothing, all but the matrix products, or every layer.
    remat: str = "none"
    # One scan over the stacked layers (compiles fast) or a loop unrolled over them (runs fast).
    scan_layers: bool = True
    # Attention kernel; "auto" takes the best one that the device and the dtype allow.
    attention: str = "auto"

    def check(self) -> None:
        """Raises UserError for the first field that has a value which cannot work."""
        require_choice(self, "param_dtype", DTYPES)
        require_choice(self, "compute_dtype", DTYPES)
        require_choice(self, "remat", REMAT_POLICIES)
        require_choice(self, "attention", ATTENTION_IMPLEMENTATIONS)
        require_range(self, "dropout", 0.0, 1.0)
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type in (int, "int") and value < 1:
                raise UserError(f"{field.name}={value}: must be at least 1.")


@dataclass(frozen=True, kw_only=True)
class T5Config(ModelConfig):
    """T5 v1.1 at base size; v1.0 is `activation="relu", gated=False, tied_logits=True`.

    Raffel et al. 2020 (arXiv 1910.10683) for v1.0; Shazeer 2020 (arXiv 2002.05202) for the gated
    feedforward block of v1.1.
    """

    # Rows of the embedding table; the top 100 ids are the sentinels of span corruption.
    vocab_size: int = 32128
    # Width of the residual stream.
    model_dim: int = 768
    # Width of the feedforward block (of each of the two halves if it is gated).
    mlp_dim: int = 2048
    # Attention heads in each attention block.
    num_heads: int = 12
    # Width of one head; num_heads x head_dim need not be model_dim.
    head_dim: int = 64
    # Layers of the encoder.
    num_encoder_layers: int = 12
    # Layers of the decoder.
    num_decoder_layers: int = 12
    # Nonlinearity of the feedforward block.
    activation: str = "gelu_tanh"
    # Whether the feedforward block multiplies its activation by a second, linear half.
    gated: bool = True
    # Whether the logits reuse the embedding table, with inputs scaled by model_dim^-0.5 (v1.0).
    tied_logits: bool = False
    # Rows of the relative position table of each of encoder and decoder.
    relative_buckets: int = 32
    # Distance in tokens from which on all positions share the last bucket.
    relative_max_distance: int = 128
    # Added to the mean square inside the root of RMSNorm.
    norm_epsilon: float = 1e-6
    # Weight of the squared log-partition function in the loss.
    z_loss: float = 0.0
    # Probability mass that the loss spreads evenly over the vocabulary.
    label_smoothing: float = 0.0

    def check(self) -> None:
        """Raises UserError for the first field that has a value which cannot work."""
        super().check()
        require_choice(self, "activation", ACTIVATIONS)
        require_range(self, "label_smoothing", 0.0, 1.0)
        require_range(self, "z_loss", 0.0, float("inf"))
        require_range(self, "norm_epsilon", 0.0, 1.0)
        # The encoder's buckets serve two directions, each half exact and half logarithmic.
        if self.relative_buckets < 4 or self.relative_buckets % 2:
            raise UserError(
                f"relative_buckets={self.relative_buckets}: must be even and at least 4."
            )
        # The decoder looks one way only, so that half of all its buckets are exact.
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise UserError(
                f"relative_max_distance={self.relative_max_distance}: must be more than "
                f"relative_buckets / 2 = {self.relative_buckets // 2}."
            )


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(ModelConfig):
    """What BERT and ViT share: layers of self-attention and feedforward blocks of one width."""

    # Width of the residual stream, which the heads share evenly.
    model_dim: int = 768
    # Width of the feedforward block (of each of the two halves if it is gated).
    mlp_dim: int = 3072
    # Attention heads in each layer.
    num_heads: int = 12
    # Layers of the encoder.
    num_layers: int = 12
    # Nonlinearity of the feedforward block.
    activation: str = "gelu"
    # Whether the feedforward block multiplies its activation by a second, linear half.
    gated: bool = False
    # Whether the products inside the layers add biases; LayerNorm always does.
    use_bias: bool = True
    # LayerNorm before each block and after the last layer, or after each block.
    pre_norm: bool = True
    # Added to the variance inside the root of LayerNorm.
    norm_epsilon: float = 1e-12

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.model_dim // self.num_heads

    def check(self) -> None:
        """Raises UserError for the first field that has a value which cannot work."""
        super().check()
        require_choice(self, "activation", ACTIVATIONS)
        require_range(self, "norm_epsilon", 0.0, 1.0)
        if self.model_dim % self.num_heads:
            raise UserError(
                f"model_dim={self.model_dim}, num_heads={self.num_heads}: the heads must share the "
                f"width evenly."
            )
        if self.gated and self.use_bias:
            raise UserError(
                "gated=True, use_bias=True: the gated feedforward block has no biases; set "
                "use_bias=false."
            )


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """BERT at base size, as published by Devlin et al. 2019 (arXiv 1810.04805), uncased.

    The crammed form (Geiping and Goldstein 2023, arXiv 2212.14034) is in `models.presets`.
    """

    # Rows of the embedding table, which is also the decoder.
    vocab_size: int = 30522
    # Longest sequence.
    max_length: int = 512
    # How tokens know their position: a learned table, or sinusoids times one learned number.
    positions: str = "learned"
    # Rows of the table that tells two sentences apart; None has no such table.
    num_token_types: int | None = 2
    # LayerNorm before each block and after the last layer, or after each block.
    pre_norm: bool = False
    # Whether the pooled output is tanh of a learned product of the first token's state, or that
    # state itself. Masked language modelling does not train it.
    pooler: bool = True
    # What comes before the decoder: "transform" (product, activation, LayerNorm; and a bias on the
    # logits), "linear" (a product without bias) or "none".
    mlm_head: str = "transform"

    def check(self) -> None:
        """Raises UserError for the first field that has a value which cannot work."""
        super().check()
        require_choice(self, "positions", POSITIONS)
        require_choice(self, "mlm_head", MLM_HEADS)
        if self.num_token_types is not None and self.num_token_types < 1:
            raise UserError(
                f"num_token_types={self.num_token_types}: must be at least 1, or none for no table."
            )
        if self.positions == "scaled_sinusoidal" and self.model_dim % 2:
            raise UserError(
                f"model_dim={self.model_dim}: sinusoids come in pairs, so it must be even."
            )


@dataclass(frozen=True, kw_only=True)
class ViTConfig(EncoderConfig):
    """ViT-B/16 on 224 x 224 images (Dosovitskiy et al. 2021, arXiv 2010.11929)."""

    # Height and width of the images in pixels.
    image_size: int = 224
    # Height and width of a patch in pixels.
    patch_size: int = 16
    # Channels of the images.
    channels: int = 3
    # Classes to tell apart.
    num_classes: int = 1000
    # What is classified: the state of an extra "class_token", or the "mean" of the patches' states.
    pooling: str = "class_token"
    # Probability mass that the loss spreads evenly over the classes.
    label_smoothing: float = 0.0

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_tokens(self) -> int:
        """Length of the sequence that the encoder sees."""
        return self.num_patches + (self.pooling == "class_token")

    def check(self) -> None:
        """Raises UserError for the first field that has a value which cannot work."""
        super().check()
        require_choice(self, "pooling", POOLINGS)
        require_range(self, "label_smoothing", 0.0, 1.0)
        if self.image_size % self.patch_size:
            raise UserError(
                f"image_size={self.image_size}, patch_size={self.patch_size}: patches must tile "
                f"the image."
            )


@dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """How devices share the work: the product of the four sizes is the number of devices used."""

    # Copies of everything below, where a slow network joins them: at least one for each slice.
    replica: int = 1
    # Copies of the parameters, each with its own part of the batch; -1 takes all devices left.
    data: int = -1
    # Parts of the parameters and of their optimiser state, gathered layer by layer where they are
    # used; each device has its own part of the batch.
    fsdp: int = 1
    # Parts of each matrix product; its devices work on the same part of the batch.
    tensor: int = 1

    def check(self) -> None:
        """Raises UserError for the first size that has a value which cannot work."""
        for name, size in asdict(self).items():
            if size < 1 and (name, size) != ("data", -1):
                rest = ", or -1 for all devices left" if name == "data" else ""
                raise UserError(f"mesh.{name}={size}: must be at least 1{rest}.")

    def sizes(self, num_devices: int) -> dict[str, int]:
        """Returns the size of each axis on a machine with so many devices.

        Given sizes may use fewer devices than there are. Raises UserError if they need more, or if
        the other axes cannot share all devices evenly where `data` is -1.
        """
        self.check()
        if not self._fits(num_devices):
            given = " x ".join(f"{name} {size}" for name, size in asdict(self).items())
            raise UserError(
                f"mesh of {given}: does not fit {num_devices} devices; the nearest that does has "
                f"{self._nearest(num_devices)}."
            )
        others = self.replica * self.fsdp * self.tensor
        return asdict(self) | {"data": num_devices // others if self.data == -1 else self.data}

    def _fits(self, num_devices: int) -> bool:
        others = self.replica * self.fsdp * self.tensor
        if self.data == -1:
            return num_devices % others == 0
        return others * self.data <= num_devices

    def _nearest(self, num_devices: int) -> str:
        """Returns the fields to change, as few and by as small a factor as can be."""
        given = {name: size for name, size in asdict(self).items() if size > 0}
        divisors = [size for size in range(1, num_devices + 1) if num_devices % size == 0]
        choices = product(*([size, *divisors] for size in given.values()))
        options = [dict(zip(given, choice, strict=True)) for choice in choices]
        fitting = [sizes for sizes in options if replace(self, **sizes)._fits(num_devices)]

        def change(sizes: dict[str, int]) -> tuple[int, float]:
            factors = [abs(log(sizes[name] / given[name])) for name in given]
            return sum(factor > 0 for factor in factors), sum(factors)

        best = min(fitting, key=change)
        return " ".join(f"mesh.{name}={best[name]}" for name in given if best[name] != given[name])


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """What a pre-trained encoder gets for a task with classes or a score."""

    # Classes; 1: a score, learnt by squared error.
    num_outputs: int
    # Width of a layer with tanh before the outputs; 0: none. 1,024 in crammed BERT's fine-tuning.
    hidden_dim: int = 0
    # What is read: what the encoder makes of the "first" position, or the "mean" of all but
    # padding.
    pooling: str = "first"

    def check(self) -> None:
        """Raises UserError for values that no head can have."""
        if self.num_outputs < 1:
            raise UserError(f"num_outputs={self.num_outputs}: must be at least 1.")
        if self.hidden_dim < 0:
            raise UserError(f"hidden_dim={self.hidden_dim}: must be at least 0.")
        if self.pooling not in ("first", "mean"):
            raise UserError(f"pooling={self.pooling}: must be first or mean.")


def require_choice(cfg: ModelConfig, name: str, choices: Iterable[str]) -> None:
    """Raises UserError unless field `name` is one of `choices`."""
    value, known = getattr(cfg, name), tuple(choices)
    if value not in known:
        raise UserError(
            f"{name}={value}: must be one of {', '.join(known)}.{did_you_mean(str(value), known)}"
        )


def require_range(cfg: ModelConfig, name: str, low: float, high: float) -> None:
    """Raises UserError unless field `name` lies in [low, high)."""
    value = getattr(cfg, name)
    if not low <= value < high:
        raise UserError(f"{name}={value}: must be at least {low:g} and below {high:g}.")
