"""What a method is given to prepare a run with: data, the working folder, and the suite itself."""

import dataclasses
import pathlib

from experiments.clock import Clock
from experiments.config import Experiment
from experiments.data.windows import Prepared
from experiments.display import Display
from experiments.reference import Reference
from experiments.run_folder import RunFolder, read_json
from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class Supply:
    """What `Method.before_run` may use."""

    # The data of the run.
    prepared: Prepared
    # Folder of all runs.
    workdir: pathlib.Path
    reference: Reference
    display: Display

    def finished_run(self, experiment: Experiment) -> pathlib.Path:
        """Returns the folder of a finished run of the experiment, which is made if need be.

        Raises UserError where it was stopped or diverged.
        """
        # The suite calls methods, and here a method calls the suite.
        from experiments.run import carry_out

        folder = RunFolder(self.workdir, experiment)
        summary = read_json(folder.path / "summary.json")
        if not (summary and summary["status"] == "finished"):
            self.display.tell(f"This run needs {experiment.name} first: {folder.path}")
            carry_out(
                experiment,
                self.workdir,
                self.reference,
                self.display,
                Clock(since_process_start=False),
            )
            summary = read_json(folder.path / "summary.json")
        if not (summary and summary["status"] == "finished"):
            raise UserError(f"{folder.path}: this run, which another needs, is not finished.")
        return folder.path
