"""`python -m experiments.fff_tables --run=FOLDER`: a trained layer, and what came to it.

For `python -m fff.benchmark --tables=…`: routing that was learnt goes to few leaves.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from experiments.launch import run_main
from models.errors import UserError

_RUN = flags.DEFINE_string("run", None, "Folder of a finished run with hard trees.")
_LAYER = flags.DEFINE_integer("layer", 0, "Number of the layer, from 0.")
_OUT = flags.DEFINE_string("out", None, "The .npz file; by default in the run's folder.")


def layer_of_run(folder: pathlib.Path, layer: int) -> dict[str, np.ndarray]:
    """Returns `x` (T, D), all tokens of a validation batch where they enter the layer, and its
    tables `node_in`, `bias` and `node_out`.

    Raises UserError where the run has no such layer, is missing or not finished.
    """
    import jax
    from jax.experimental import io_callback

    from experiments.data.batches import Batches
    from experiments.data.config import DataConfig
    from experiments.data.prepare import prepare
    from experiments.downstream.source import decode
    from experiments.trained import nested, open_run
    from fff.config import FFFConfig
    from fff.layer import HardFFF
    from models.api import build
    from models.config import EncoderConfig

    run = open_run(folder)
    cfg, model = decode(FFFConfig, run.experiment.get("fff")), run.model()
    if cfg is None or cfg.form != "hard" or not isinstance(model, EncoderConfig):
        raise UserError(f"{folder}: has no hard trees; runs of fff_bert_… have.")
    if not 0 <= layer < model.num_layers:
        raise UserError(f"--layer={layer}: must be from 0 to {model.num_layers - 1}.")
    entered: list[np.ndarray] = []

    class Recording(HardFFF):
        """A layer that writes down what it is given."""

        def __call__(self, x_BTD: jax.Array, *, key: jax.Array | None = None) -> jax.Array:
            io_callback(
                lambda x: entered.append(np.asarray(x, np.float32)), None, x_BTD, ordered=True
            )
            return super().__call__(x_BTD, key=key)

    params: Any = nested(run.params())
    data = decode(DataConfig, run.experiment["data"])
    batches = Batches(prepare(data), data, "validation", run.experiment["train"]["batch_size"])
    network = build(model, lambda key: Recording(key, cfg, model.model_dim, model.param_dtype))
    jax.block_until_ready(jax.jit(network.apply)(params, batches.batch(0, 0)))
    jax.effects_barrier()
    mlp = params["encoder"]["layers"]["mlp"]
    node_in = mlp["node_in"][layer]
    bias = mlp["node_in_bias"][layer] if cfg.use_bias else np.zeros(len(node_in), np.float32)
    return {
        "x": entered[layer].reshape(-1, model.model_dim),
        "node_in": node_in,
        "bias": bias,
        "node_out": mlp["node_out"][layer],
    }


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --run=FOLDER.")
    if _RUN.value is None:
        raise UserError("--run=FOLDER is missing.")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    folder = pathlib.Path(_RUN.value)
    arrays = layer_of_run(folder, _LAYER.value)
    out = pathlib.Path(_OUT.value) if _OUT.value else folder / "fff_tables.npz"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # By a file of ours: given a name, savez would put .npz after it.
        with open(out, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"--out={out}: cannot write there ({error.strerror}).") from None
    tokens, width = arrays["x"].shape
    print(f"{out}  {tokens:,} tokens of width {width}, {len(arrays['bias']):,} neurons")
    return 0


if __name__ == "__main__":
    run_main(main)
