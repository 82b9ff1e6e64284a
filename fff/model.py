"""What a model with fast feedforward layers computes."""

from collections.abc import Mapping

from fff.config import FFFConfig
from fff.kernels import choose_training
from models.api import Model


def with_path_flops(model: Model, cfg: FFFConfig) -> Model:
    """Returns the model with `forward_flops` that count the neurons which training computes.

    Where the training kernel gathers these are the neurons on a token's path, not all of a layer.
    """
    if cfg.form != "hard" or choose_training(cfg) == "dense":
        return model

    def forward_flops(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        return {
            path: count * cfg.used_neurons // cfg.num_neurons if "/mlp/node_" in path else count
            for path, count in model.forward_flops(shapes).items()
        }

    return model._replace(forward_flops=forward_flops)
