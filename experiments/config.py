"""What an experiment is: frozen dataclasses with a comment per field and checks across fields."""

import dataclasses
import hashlib
import json
from typing import Any

from experiments.budget import parse_budget
from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.init import InitConfig
from experiments.methods.api import Method
from fff.config import FFFConfig, check_fits
from models.config import BertConfig, HeadConfig, MeshConfig, T5Config, ViTConfig
from models.errors import UserError, did_you_mean
from sparsity.config import PruningConfig

ModelConfig = T5Config | BertConfig | ViTConfig

SCALES = ("demo", "paper")


OPTIMIZERS = ("adamw", "adafactor", "lion", "sophia_g", "sophia_h", "muon", "schedule_free")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SophiaConfig:
    """How Sophia estimates and uses the diagonal of the curvature (Liu et al. 2023, 2305.14342)."""

    # Steps from one estimate to the next.
    hessian_every_steps: int = 10
    # Examples of the batch that an estimate is made from; 0: all.
    hessian_examples: int = 0
    # Curvature counts gamma-fold: smaller values clip more updates to a sign.
    gamma: float = 0.01
    # Gradients of an estimate are scaled down to this global norm before squaring; 0, as published,
    # leaves them.
    hessian_clip_norm: float = 0.0

    def check(self) -> None:
        _in_range("optimizer.sophia.hessian_every_steps", self.hessian_every_steps, low=1)
        _in_range("optimizer.sophia.hessian_examples", self.hessian_examples, low=0)
        _in_range("optimizer.sophia.gamma", self.gamma, low=0, open_low=True)
        _in_range("optimizer.sophia.hessian_clip_norm", self.hessian_clip_norm, low=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimiser and its learning rate, a function of progress (spent budget over budget)."""

    # "adamw", "adafactor" (T5's), "lion", "sophia_g", "sophia_h", "muon" or "schedule_free".
    name: str = "adamw"
    # Highest learning rate; with scale_by_rms it is relative to each parameter's root mean square.
    peak_learning_rate: float = 1e-3
    # Shape after the warm-up: "cosine", "linear", "rsqrt" or "constant".
    schedule: str = "cosine"
    # Share of the budget over which the learning rate rises linearly to its peak.
    warmup_fraction: float = 0.1
    # Learning rate at the very start over the peak.
    initial_learning_rate_ratio: float = 0.0
    # Learning rate at the end over the peak, for "cosine" and "linear".
    final_learning_rate_ratio: float = 0.0
    # AdamW's decay of the first moment.
    beta1: float = 0.9
    # AdamW's decay of the second moment.
    beta2: float = 0.98
    # AdamW adds it to the root of the second moment.
    epsilon: float = 1e-8
    # Decoupled weight decay, on matrices only, times the learning rate.
    weight_decay: float = 0.0
    # Gradients are scaled down to this global norm; 0 leaves them.
    clip_norm: float = 1.0
    # AdamW multiplies each tensor's update by max(1e-3, RMS(tensor)); AdaFactor always does.
    scale_by_rms: bool = False
    # AdaFactor keeps row and column means of the second moment; not with pruning.
    factored: bool = True
    # How Sophia estimates curvature; None for the other optimisers.
    sophia: SophiaConfig | None = None

    def check(self) -> None:
        _one_of("optimizer.name", self.name, OPTIMIZERS)
        if (self.sophia is not None) != self.name.startswith("sophia"):
            raise UserError(
                f"optimizer.name={self.name}: optimizer.sophia belongs to sophia_g and sophia_h, "
                "and to them only."
            )
        if self.sophia:
            self.sophia.check()
        if self.name == "schedule_free":
            _in_range("optimizer.beta1", self.beta1, low=0, high=1, open_low=True)
        _one_of("optimizer.schedule", self.schedule, ("cosine", "linear", "rsqrt", "constant"))
        _in_range("optimizer.peak_learning_rate", self.peak_learning_rate, low=0, open_low=True)
        _in_range("optimizer.warmup_fraction", self.warmup_fraction, low=0, high=1)
        _in_range("optimizer.initial_learning_rate_ratio", self.initial_learning_rate_ratio, 0, 1)
        _in_range("optimizer.final_learning_rate_ratio", self.final_learning_rate_ratio, 0, 1)
        _in_range("optimizer.beta1", self.beta1, low=0, high=1)
        _in_range("optimizer.beta2", self.beta2, low=0, high=1)
        _in_range("optimizer.epsilon", self.epsilon, low=0)
        _in_range("optimizer.weight_decay", self.weight_decay, low=0)
        _in_range("optimizer.clip_norm", self.clip_norm, low=0)
        if self.schedule == "rsqrt" and self.warmup_fraction == 0:
            raise UserError(
                "optimizer.schedule=rsqrt needs a warm-up to start from: "
                "optimizer.warmup_fraction is 0, T5 uses 10,000 steps of its budget."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How much work a step is, and what happens between steps."""

    # Sequences (or images) per update.
    batch_size: int
    # Equal parts that a batch is cut into; gradients are accumulated over them.
    microbatches: int = 1
    # Steps between two lines of metrics.
    log_every_steps: int = 10
    # Evaluations, spread evenly over the budget, the last one at its end.
    num_evaluations: int = 4
    # Batches of validation data in one evaluation (all of them where there are fewer).
    eval_batches: int = 16
    # Checkpoints, spread evenly over the budget, the last one at its end.
    num_checkpoints: int = 4
    # Checkpoints kept in the run folder.
    keep_checkpoints: int = 2
    # Steps traced by the profiler for the step time, after the warm-up steps.
    profile_steps: int = 20
    # Steps at the start of a program that no measurement uses.
    warmup_steps: int = 5

    def check(self) -> None:
        for field in dataclasses.fields(self):
            _in_range(f"train.{field.name}", getattr(self, field.name), low=1)
        if self.profile_steps < 2:
            raise UserError(
                f"train.profile_steps={self.profile_steps}: a step time needs at least 2 steps."
            )
        if self.batch_size % self.microbatches:
            raise UserError(
                f"train.microbatches={self.microbatches} does not divide "
                f"train.batch_size={self.batch_size}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that decides what a run does; equal experiments give equal runs."""

    # The name it is registered under.
    name: str
    # "demo": a 2-core CPU in under three minutes; "paper": the published size.
    scale: str
    # What is spent on training: "90s", "6h" (reference-system time) or "2000steps".
    budget: str
    # Decides initial parameters, order of the data and every other draw.
    seed: int = 0
    # The network.
    model: ModelConfig
    # Where tokens come from and how they become training examples.
    data: DataConfig
    # How parameters are updated.
    optimizer: OptimizerConfig
    # What an encoder gets for a downstream task; None for pre-training and for T5.
    head: HeadConfig | None = None
    # Trained weights to start from; None draws them by the seed.
    init: InitConfig | None = None
    # What is pruned and when; None trains densely.
    pruning: PruningConfig | None = None
    # Fast feedforward layers in the place of the model's own; None leaves these.
    fff: FFFConfig | None = None
    # An efficient-training method and its settings; None for plain training.
    method: Method | None = None
    # Batch size, and what happens between steps.
    train: TrainConfig
    # Settings that were tried before these were chosen; None where nobody counted.
    tuning_trials: int | None = None
    # How the devices share the work; all of them, each with its part of the batch, by default.
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)

    def check(self) -> None:
        """Raises UserError where the parts do not fit each other, before anything compiles."""
        _one_of("scale", self.scale, SCALES)
        _in_range("seed", self.seed, low=0, high=2**31 - 1)
        parse_budget(self.budget)
        for part in (self.data, self.optimizer, self.train, self.mesh):
            part.check()
        # The rooms below do not know under which name they are part of an experiment.
        for name in ("model", "head", "init", "pruning", "fff"):
            try:
                if getattr(self, name) is not None:
                    getattr(self, name).check()
            except UserError as error:
                raise UserError(f"{name}.{error}") from None
        self._check_model_fits_data()
        if self.fff is not None:
            check_fits(self.fff, self.model)
        self._check_method()
        if self.pruning and self.optimizer.name == "adafactor" and self.optimizer.factored:
            raise UserError(
                "optimizer.factored=true with pruning: row and column means would count pruned "
                "weights. Set optimizer.factored=false."
            )

    def _check_head(self) -> None:
        keeps = self.init is not None and self.init.keep_zeros
        if keeps and (self.pruning is None or self.pruning.rule != "static"):
            raise UserError("init.keep_zeros=true: needs pruning.rule=static, to be its masks.")
        if self.head is None and self.data.objective == "classification":
            raise UserError("head: is missing; experiments.finetune sets it for a task.")
        if self.head is not None and self.data.objective not in (
            "classification",
            "image_classification",
        ):
            raise UserError(
                f"head: belongs to classification, not to data.objective={self.data.objective}."
            )

    def _check_method(self) -> None:
        if self.method is not None:
            fixed = type(self.method).__dataclass_fields__["name"].default
            if fixed is not dataclasses.MISSING and self.method.name != fixed:
                raise UserError(
                    f"method.name={self.method.name}: follows from the experiment; it is {fixed}."
                )
            self.method.check(self)
        if self.optimizer.name.startswith("sophia"):
            if self.pruning is not None:
                raise UserError(
                    f"optimizer.name={self.optimizer.name} with pruning: its curvature would count "
                    "pruned weights; use adamw."
                )
            if isinstance(self.model, ViTConfig):
                raise UserError(
                    f"optimizer.name={self.optimizer.name}: for models that predict tokens."
                )
            examples = self.optimizer.sophia.hessian_examples if self.optimizer.sophia else 0
            part = self.train.batch_size // self.train.microbatches
            if examples > self.train.batch_size or (examples > part and examples % part):
                raise UserError(
                    f"optimizer.sophia.hessian_examples={examples}: must be at most "
                    f"train.batch_size={self.train.batch_size} and, above one microbatch of "
                    f"{part}, a multiple of it."
                )

    def _check_model_fits_data(self) -> None:
        model = self.model
        family, *objectives = _OBJECTIVES[type(model)]
        if self.data.objective not in objectives:
            raise UserError(
                f"data.objective={self.data.objective}: {family} is trained on {objectives[0]}."
            )
        self._check_head()
        if isinstance(model, ViTConfig):
            for name, given in (("image_size", model.image_size), ("channels", model.channels)):
                field = name if name == "image_size" else f"image_{name}"
                if given != getattr(self.data, field):
                    raise UserError(
                        f"model.{name}={given}: data.{field} is {getattr(self.data, field)}; set"
                        " both alike."
                    )
            return
        # Imported here, since reading configurations must stay quick.
        from experiments.data.vocabulary import vocab_size

        if model.vocab_size < vocab_size(self.data):
            raise UserError(
                f"model.vocab_size={model.vocab_size}: the data has {vocab_size(self.data)} "
                f"tokens, {NUM_SENTINELS} sentinels among them; set at least that."
            )
        if isinstance(model, BertConfig) and model.max_length < self.data.inputs_length:
            raise UserError(
                f"model.max_length={model.max_length}: data.inputs_length is "
                f"{self.data.inputs_length}; set at least that."
            )


# Which objective each family is pre-trained on, and which it does downstream tasks by.
_OBJECTIVES = {
    T5Config: ("T5", "span_corruption", "text_to_text"),
    BertConfig: ("BERT", "mlm", "classification"),
    ViTConfig: ("ViT", "image_classification"),
}


def to_json(config: Any) -> dict[str, Any]:
    """The configuration as nested JSON objects."""
    return dataclasses.asdict(config)


def config_hash(experiment: Experiment) -> str:
    """Eight hex digits over everything that the run folder's name does not already say."""
    rest = _said(to_json(dataclasses.replace(experiment, seed=0, budget="")))
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:8]


def same_configuration(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Says whether two experiments as JSON ask for the same; a missing field is one of None."""
    return _said(json.loads(json.dumps(left))) == _said(json.loads(json.dumps(right)))


def _said(config: Any) -> Any:
    """Leaves out all that is None, so that a new optional field renames no older run."""
    if isinstance(config, dict):
        return {name: _said(value) for name, value in config.items() if value is not None}
    return config


def _one_of(path: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UserError(
            f"{path}={value}: not one of {', '.join(known)}.{did_you_mean(value, known)}"
        )


def _in_range(
    path: str, value: float, low: float, high: float = float("inf"), open_low: bool = False
) -> None:
    if not (low < value if open_low else low <= value) or not value <= high:
        bound = f"{'above' if open_low else 'at least'} {low}"
        bound += "" if high == float("inf") else f" and at most {high}"
        raise UserError(f"{path}={value}: must be {bound}.")
