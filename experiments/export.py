"""`python -m experiments.export --run=FOLDER`: a finished run's weights as safetensors files."""

import os
import pathlib
from collections.abc import Sequence

from absl import flags

from experiments.launch import run_main
from models.errors import UserError

_RUN = flags.DEFINE_string("run", None, "Folder of a finished run.")
_OUT = flags.DEFINE_string("out", None, "Folder for the files; by default `export` in the run's.")
_FORM = flags.DEFINE_enum(
    "form",
    "compressed",
    ("compressed", "dense", "hugging_face"),
    "compressed: kept values and where they lie; dense: zeros included; hugging_face: dense, in a "
    "folder that transformers loads.",
)


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --run=FOLDER.")
    if _RUN.value is None:
        raise UserError("--run=FOLDER is missing.")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # Imported here, so that a wrong flag is answered at once.
    from experiments.export_run import export

    run = pathlib.Path(_RUN.value)
    out = pathlib.Path(_OUT.value) if _OUT.value else run / "export"
    for name, size in export(run, out, _FORM.value).items():
        print(f"{out / name}  {size:,} bytes")
    return 0


if __name__ == "__main__":
    run_main(main)
