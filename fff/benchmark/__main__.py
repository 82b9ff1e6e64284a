"""`python -m fff.benchmark`: fast feedforward layers against dense ones, verified, then timed."""

import argparse
import os
import pathlib
from collections.abc import Sequence

from fff.config import hard_trees
from models.allocator import keep_freed_memory
from models.errors import UserError


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="fff.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--trees", default="1x11", help="trees x index of the last level")
    parser.add_argument("--model_dim", type=int, default=768)
    parser.add_argument("--tokens", default="1,32,1024,16384", help="numbers of tokens")
    parser.add_argument("--layers", type=int, default=16, help="layers that are run in turn")
    parser.add_argument("--tables", type=pathlib.Path, help="trained tables and tokens, .npz")
    parser.add_argument("--seconds", type=float, default=4.0, help="timing of each comparison")
    parser.add_argument("--quick", action="store_true", help="half a minute, to see that it works")
    parser.add_argument("--training", action="store_true", help="times steps of training instead")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("fff_benchmark"))
    arguments = parser.parse_args(argv)
    # Threads of other libraries are not to spin while XLA's work.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    try:
        _run(arguments)
    except UserError as error:
        parser.exit(2, f"{error}\n")


def _run(arguments: argparse.Namespace) -> None:
    from fff.benchmark import report
    from fff.benchmark.compare import Settings, run
    from fff.benchmark.training import time_training

    cfg = hard_trees(arguments.trees)
    try:
        tokens = tuple(int(part) for part in arguments.tokens.split(","))
    except ValueError:
        raise UserError(f"--tokens={arguments.tokens}: write numbers, as in 1,1024.") from None
    if min(tokens) < 1 or arguments.model_dim < 1 or arguments.layers < 1:
        raise UserError("--tokens, --model_dim and --layers: must be at least 1.")
    if not 0 <= arguments.seconds < float("inf"):
        raise UserError(f"--seconds={arguments.seconds}: must be at least 0 and finite.")
    if arguments.training:
        report.print_training(time_training(cfg, arguments.model_dim, arguments.seconds))
        return
    settings = Settings(
        cfg=cfg,
        model_dim=arguments.model_dim,
        tokens=(1, 256) if arguments.quick else tokens,
        layers=2 if arguments.quick else arguments.layers,
        tables=arguments.tables,
        seconds=0.5 if arguments.quick else arguments.seconds,
        quick=arguments.quick,
    )
    # What cannot be written is not measured for minutes first.
    report.make_folder(arguments.out)
    results = run(settings)
    report.write(results, arguments.out)
    report.show(results, arguments.out)


if __name__ == "__main__":
    main()
