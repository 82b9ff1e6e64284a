"""`python -m launch.calibration`: predicted against measured step times on this processor.

The same prediction that `launch.plan` makes, from the compiled program and figures of the chip, for
the one chip that can be measured here: five demo experiments of different kinds.
"""

import dataclasses
import json
import pathlib
import statistics
import time
from collections.abc import Sequence
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.launch import run_main
from models.allocator import keep_freed_memory
from models.errors import UserError

_OUT = flags.DEFINE_string("json", None, "File to write the figures to.")
_STEPS = flags.DEFINE_integer("steps", 20, "Steps that are timed.", lower_bound=3)

# Experiment, and what is changed in its demo form.
CONFIGURATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dense_t5", ()),
    ("dense_t5", ("train.batch_size=32", "data.inputs_length=64", "data.targets_length=16")),
    ("bert_baseline", ()),
    ("crammed_bert", ("model.model_dim=256", "model.num_layers=2")),
    ("vit_baseline", ()),
)


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag.")
    keep_freed_memory()
    rows = calibrate(_STEPS.value)
    table = Table(title=f"Predicted and measured steps, {rows[0]['chip']}")
    for column in ("experiment", "GFLOP", "predicted", "measured", "predicted / measured", "bound"):
        table.add_column(column, justify="left" if column in ("experiment", "bound") else "right")
    for row in rows:
        table.add_row(
            " ".join([row["exp"], *row["settings"]]),
            f"{row['flops'] / 1e9:.1f}",
            f"{1e3 * row['predicted_s']:.1f} ms",
            f"{1e3 * row['measured_s']:.1f} ms",
            f"{row['predicted_s'] / row['measured_s']:.2f}",
            row["bound"],
        )
    Console(width=120).print(table)
    if _OUT.value:
        pathlib.Path(_OUT.value).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def calibrate(
    steps: int, configurations: Sequence[tuple[str, Sequence[str]]] = CONFIGURATIONS
) -> list[dict[str, Any]]:
    """One row for each configuration; the processor is measured just before each of them."""
    import jax

    from experiments.overrides import apply_overrides
    from experiments.registry import resolve
    from launch.chips import measure_cpu
    from launch.compiled_step import CompiledStep, compile_step
    from launch.predict import predict

    rows = []
    for name, settings in configurations:
        experiment = apply_overrides(resolve(name, "demo"), settings)
        experiment.check()
        chip = measure_cpu()
        step = compile_step(experiment, jax.devices(), chip.memory)
        if not isinstance(step, CompiledStep):
            raise UserError(f"{name}: does not fit this machine's memory.")
        found = predict(step.kernels, chip)
        rows.append(
            {
                "exp": name,
                "settings": list(settings),
                "chip": chip.name,
                "measured_chip": dataclasses.asdict(chip),
                "flops": found.flops,
                "predicted_s": found.step_s,
                "bound": found.bound,
                "measured_s": measure_step(experiment, steps),
            }
        )
    return rows


def measure_step(experiment: Any, steps: int) -> float:
    """Median seconds of a step on random tokens: what they are does not change the work."""
    import jax
    import numpy as np

    from experiments.program import compile_program

    program = compile_program(experiment)
    state, draw = program.init_state(0), np.random.default_rng(0)
    batch = {
        name: (
            draw.integers(1, 8, like.shape).astype(like.dtype)
            if np.issubdtype(like.dtype, np.integer)
            else np.ones(like.shape, like.dtype)
        )
        for name, like in program.batch_shapes.items()
    }
    taken = []
    for index in range(steps + 2):
        begun = time.perf_counter()
        share = np.float32(index / (steps + 2))
        state, sums = program.step(state, batch, index, share, share)
        jax.block_until_ready((state, sums))
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[2:])


if __name__ == "__main__":
    run_main(main)
