"""Which program an experiment runs, in the terms of reference tables."""

from experiments.config import Experiment
from experiments.program import examples_per_step
from experiments.program_key import program_description
from experiments.reference.base import ProgramId, program_key
from models.config import BertConfig, T5Config, ViTConfig

_FAMILIES = {BertConfig: "bert", T5Config: "t5", ViTConfig: "vit"}

# Fields of the model that published tables ask for.
_SIZES = ("model_dim", "mlp_dim", "num_heads", "gated", "vocab_size", "compute_dtype")


def identify(
    experiment: Experiment,
    kind: str = "train",
    sequences: int | None = None,
    layers: float | None = None,
) -> ProgramId:
    """The program of this kind of an experiment.

    Args:
      experiment: with the model that runs (of a stage with fewer layers, its own).
      kind: "train" (an update), "forward", "hessian" or another of a method's.
      sequences: of one call; those that this kind of call is given where None.
      layers: that run on average, where not all do.
    """
    model, data = experiment.model, experiment.data
    depth = getattr(model, "num_layers", None)
    depth = getattr(model, "num_encoder_layers", None) if depth is None else depth
    given = sequences or _sequences(experiment, kind)
    extras = [name for name in ("pruning", "fff") if getattr(experiment, name, None) is not None]
    description = {**program_description(experiment, kind), "sequences": sequences}
    return ProgramId(
        family=_FAMILIES[type(model)],
        kind=kind,
        layers=int(depth or 0),
        sequences=given,
        key=program_key(description, kind),
        details={
            **{name: getattr(model, name) for name in _SIZES if hasattr(model, name)},
            "inputs_length": data.inputs_length,
            "targets_length": data.targets_length,
            "optimizer": experiment.optimizer.name,
            "symmetric": depth == getattr(model, "num_decoder_layers", depth),
            "extras": extras,
            "running_layers": layers,
        },
    )


def _sequences(experiment: Experiment, kind: str) -> int:
    if kind.startswith("train"):
        return experiment.train.batch_size
    sophia = experiment.optimizer.sophia
    if kind == "hessian" and sophia and sophia.hessian_examples:
        return sophia.hessian_examples
    return examples_per_step(experiment)
