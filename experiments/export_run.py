"""A finished run's weights as safetensors files: compressed, dense, or for transformers."""

import pathlib

from experiments.trained import nested, open_run
from models.errors import UserError
from models.hugging_face.export import export as export_to_hugging_face
from sparsity.export import save_compressed, save_dense


def export(folder: pathlib.Path, out: pathlib.Path, form: str) -> dict[str, int]:
    """Writes the weights of a finished run; returns the bytes of each file by its name.

    `sparsity.export.load` reads "compressed" and "dense" back bit for bit, `models.hugging_face`
    and transformers the form "hugging_face". Raises UserError where the run is missing or not
    finished, or transformers has no such model.
    """
    run = open_run(folder)
    params = nested(run.params())
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out={out}: cannot write there ({error.strerror}).") from None
    if form == "hugging_face":
        if run.experiment.get("fff") is not None or run.experiment.get("head") is not None:
            raise UserError(f"{folder}: transformers has no model with its fff or head group.")
        export_to_hugging_face(run.model(), params, out)
        return {path.name: path.stat().st_size for path in sorted(out.iterdir())}
    pruning = run.pruning()
    name = f"{form}.safetensors"
    if form == "compressed" and pruning is not None:
        size = save_compressed(out / name, params, pruning)
    else:
        size = save_dense(out / name, params)
    return {name: size}
