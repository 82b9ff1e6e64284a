"""What a fast feedforward layer is, as a frozen dataclass; reading it needs no JAX."""

import dataclasses
import re

from models.config import EncoderConfig, ModelConfig
from models.errors import UserError, did_you_mean

FORMS = ("hard", "soft", "none")
ACTIVATIONS = ("gelu", "relu")
KERNELS = ("auto", "xla", "cpp", "pallas", "dense")
TRAINING = ("auto", "dense", "gather")
INITS = ("normal", "uniform")
TIES = ("left", "right")
HARDENING_OVER = ("sum", "mean")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FFFConfig:
    """A fast feedforward layer in one of its two published forms, or no feedforward layer.

    "hard" (Belcak and Wattenhofer 2023, arXiv 2311.10770): `trees` parallel trees with levels
    0 ... `depth`, every node one neuron, hard routing in training too. "soft" (the same, arXiv
    2308.14711): one tree of `depth` levels of gates over 2^depth leaves of `leaf_width` neurons,
    mixed softly in training, one leaf alone in evaluation. "none" adds nothing to what a layer
    reads: what a feedforward layer is worth is the difference to that.
    """

    # "hard", "soft" or "none".
    form: str = "hard"
    # Hard: the index of the last level, so that a token passes depth + 1 nodes. Soft: gates that a
    # token passes on its way to a leaf.
    depth: int = 11
    # Parallel trees whose outputs are summed; the soft form has one.
    trees: int = 1
    # Neurons of a leaf of the soft form; a hard leaf is one neuron.
    leaf_width: int = 1
    # Nonlinearity: "gelu" (by erf) as the hard form has it, "relu" as the soft one's code.
    activation: str = "gelu"
    # Whether neurons and gates add a bias before they decide, and soft leaves one to their output.
    use_bias: bool = True
    # Where a logit of exactly 0 sends a token: "left" in the hard form's training code, "right" in
    # the soft form's. A NaN compares as false in both, so that it always goes left.
    ties: str = "left"
    # "normal": N(0, 0.02), biases 0, which is what the hard form's code ends up with; "uniform":
    # the bounds that are written in the code of either form.
    init: str = "normal"
    # What computes the hard path without a gradient; "auto" takes the best for device and batch.
    kernel: str = "auto"
    # What computes the hard form in training: all neurons and a mask ("dense"), or those on the
    # path alone ("gather"); "auto" takes what was measured to be faster for device and size.
    training: str = "auto"
    # Soft form: weight of the entropy of the gates in the loss, in nats; 0 has no such term.
    hardening: float = 0.0
    # Whether that entropy is summed over the gates (the paper) or their mean (its code).
    hardening_over: str = "sum"
    # Soft form: probability with which a gate's two sides are swapped in training.
    region_leak: float = 0.0
    # Soft form: whether gates are rounded in training, which leaves them without a gradient.
    train_hardened: bool = False

    @property
    def nodes_per_tree(self) -> int:
        """Nodes of one tree: neurons of the hard form, gates of the soft one."""
        if self.form == "none":
            return 0
        return 2 ** (self.depth + 1) - 1 if self.form == "hard" else 2**self.depth - 1

    @property
    def num_neurons(self) -> int:
        """Neurons that the layer has (gates count as the neurons that they cost)."""
        leaves = 2**self.depth * self.leaf_width if self.form == "soft" else 0
        return self.trees * self.nodes_per_tree + leaves

    @property
    def used_neurons(self) -> int:
        """Neurons that one token needs on its hard path."""
        if self.form == "soft":
            return self.depth + self.leaf_width
        return self.trees * (self.depth + 1) if self.form == "hard" else 0

    def check(self) -> None:
        """Raises UserError for the first field that has a value which cannot work."""
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise UserError(
                    f"{name}={value}: must be one of {', '.join(choices)}."
                    f"{did_you_mean(value, choices)}"
                )
        self._check_sizes()
        if self.form != "soft":
            self._check_unused("soft", ("leaf_width", "hardening", "region_leak", "train_hardened"))
        if self.form != "hard":
            self._check_unused("hard", ("trees", "training", "kernel"))
        if not 0 <= self.region_leak < 1:
            raise UserError(f"region_leak={self.region_leak}: must be at least 0 and below 1.")
        if not 0 <= self.hardening < float("inf"):
            raise UserError(f"hardening={self.hardening}: must be at least 0 and finite.")
        if self.train_hardened and self.hardening:
            raise UserError(
                f"train_hardened=true, hardening={self.hardening}: rounded gates have no entropy; "
                "set hardening=0."
            )

    def _check_sizes(self) -> None:
        lowest = 1 if self.form == "soft" else 0
        if not lowest <= self.depth <= 20:
            hint = (
                " A soft layer of depth 0 is a dense one."
                if (self.form, self.depth) == ("soft", 0)
                else ""
            )
            raise UserError(f"depth={self.depth}: must be from {lowest} to 20.{hint}")
        for name in ("trees", "leaf_width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: must be at least 1.")

    def _check_unused(self, other: str, names: tuple[str, ...]) -> None:
        for name in names:
            default = next(f.default for f in dataclasses.fields(self) if f.name == name)
            if getattr(self, name) != default:
                raise UserError(
                    f"{name}={getattr(self, name)}: only the {other} form has it; "
                    f"form is {self.form}."
                )


_CHOICES = {
    "form": FORMS,
    "activation": ACTIVATIONS,
    "ties": TIES,
    "init": INITS,
    "kernel": KERNELS,
    "training": TRAINING,
    "hardening_over": HARDENING_OVER,
}


def hard_trees(name: str) -> FFFConfig:
    """Returns the hard form that "UltraFastBERT-KxD" names: `K` trees with last level `D`."""
    match = re.fullmatch(r"([0-9]+)x([0-9]+)", name)
    if not match:
        raise UserError(f"{name}: not of the form TREESxDEPTH, as in 1x11.")
    cfg = FFFConfig(trees=int(match[1]), depth=int(match[2]))
    cfg.check()
    return cfg


def soft_leaves(training_width: int, leaf_width: int) -> FFFConfig:
    """Returns the soft form whose leaves have `training_width` neurons in all.

    Raises UserError unless that is leaf_width x 2^depth.
    """
    leaves = training_width // leaf_width if leaf_width > 0 else 0
    if leaves < 2 or leaves * leaf_width != training_width or leaves & (leaves - 1):
        below = 2 ** max(1, leaves.bit_length() - 1) * max(1, leaf_width)
        raise UserError(
            f"training width {training_width} with leaves of {leaf_width}: there must be 2, 4, 8, "
            f"... whole leaves; {below} or {2 * below} would do."
        )
    return FFFConfig(
        form="soft",
        depth=leaves.bit_length() - 1,
        leaf_width=leaf_width,
        activation="relu",
        ties="right",
        init="uniform",
    )


def check_fits(cfg: FFFConfig, model: ModelConfig) -> None:
    """Raises UserError unless the model can have such layers in place of its feedforward blocks."""
    cfg.check()
    if not isinstance(model, EncoderConfig):
        family = type(model).__name__.removesuffix("Config")
        raise UserError(f"fff: {family} has no such form; BERT and ViT have.")
    if model.gated:
        raise UserError("fff with model.gated=true: its neurons have no gate; set it to false.")
