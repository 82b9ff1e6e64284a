"""`python -m experiments.prepare --exp=NAME`: prepares an experiment's data ahead of its run."""

from collections.abc import Sequence

from experiments.launch import RUN_FLAGS, run_main, runs_from_flags
from models.errors import UserError


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    experiments = runs_from_flags()
    from experiments.display import Display
    from experiments.run import prepare_with_display

    seen = set()
    with Display() as display:
        for experiment in experiments:
            prepared = prepare_with_display(experiment, display)
            if prepared.digest in seen:
                continue
            seen.add(prepared.digest)
            for split, counts in prepared.facts["counts"].items():
                shown = ", ".join(f"{count:,} {unit}" for unit, count in counts.items())
                display.tell(f"{split}: {shown}")
            display.tell(f"digest {prepared.digest[:16]}, in {prepared.folder}")
    return 0


if __name__ == "__main__":
    run_main(main, RUN_FLAGS)
