"""Where a run's parameters come from, if not from its seed."""

import dataclasses
from typing import ClassVar

from models.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitConfig:
    """A trained network to start from: its parameters only, with a fresh optimiser and budget."""

    # `--set init.run=…` starts an experiment that has none with such a group.
    FROM_COMMAND_LINE: ClassVar[bool] = True

    # A finished run: its folder, or its experiment's name, if the working folder has one such run.
    run: str | None = None
    # A folder (or safetensors file) of weights as transformers saves them.
    hugging_face: str | None = None

    # Whether weights that are zero there stay zero: they become the masks of pruning.rule=static.
    keep_zeros: bool = False

    def check(self) -> None:
        """Raises UserError unless exactly one source is given."""
        if self.run is not None and self.hugging_face is not None:
            raise UserError("run and init.hugging_face: give one of them.")
        if not (self.run or self.hugging_face):
            raise UserError(
                "run: give a finished run's folder (or init.hugging_face, a folder of weights)."
            )
