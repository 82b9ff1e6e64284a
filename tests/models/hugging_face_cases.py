"""The reference files of transformers, as the files that transformers itself would write."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from models.config import ModelConfig
from models.functional import Params
from models.hugging_face.load import load
from tests.models.make_references import by_name


def load_reference(
    name: str, reference: Mapping[str, np.ndarray], vector: str, folder: Path
) -> tuple[ModelConfig, Params]:
    """Returns a reference's configuration and one of its vectors (`weights`, `gradients`) as ours.

    `name` starts with the type of the model; dropout is left out.
    """
    tensors = {name: np.ascontiguousarray(a) for name, a in by_name(reference, vector).items()}
    save_file(tensors, folder / "model.safetensors")
    options: dict[str, Any] = json.loads(str(reference["options"]))
    options["model_type"] = name.split("_")[0]
    rates = ("dropout_rate", "hidden_dropout_prob", "attention_probs_dropout_prob")
    options |= dict.fromkeys(rates, 0.0)
    if "num_labels" in options:
        options["id2label"] = {str(i): str(i) for i in range(options["num_labels"])}
    (folder / "config.json").write_text(json.dumps(options))
    return load(folder)
