"""The network of an experiment: a model of the models room, with what the experiment puts in."""

from experiments.config import Experiment
from models.api import Model, build
from models.classify import build_classifier
from models.layers import MakeMlp


def feedforward_block(experiment: Experiment) -> MakeMlp | None:
    """Returns what makes the feedforward blocks; None for the model's own."""
    if experiment.fff is None:
        return None
    # Imported here: few experiments need it.
    from fff.layer import make_mlp

    return make_mlp(experiment.fff, experiment.model.model_dim, experiment.model.param_dtype)


def build_network(experiment: Experiment) -> Model:
    """Returns the model that is trained, with a head for a task where the experiment has one."""
    make_mlp = feedforward_block(experiment)
    if experiment.head is not None:
        model = build_classifier(experiment.model, experiment.head, make_mlp)
    else:
        model = build(experiment.model, make_mlp)
    if experiment.fff is None:
        return model
    from fff.model import with_path_flops

    return with_path_flops(model, experiment.fff)
