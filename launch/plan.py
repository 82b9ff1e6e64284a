"""`python -m launch.plan --exp=NAME --topology=v5e:4x4`: what a run will take, before it is paid.

Compiles the experiment's own training step for devices that need not be there: a TPU slice
(libtpu's compiler, no TPU) or simulated ones (h100:8, cpu:8: the step as compiled for CPU devices,
against that chip's data sheet). Nothing is run, no data is read.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.budget import parse_budget
from experiments.config import Experiment
from experiments.data.objectives import tokens_per_batch
from experiments.launch import RUN_FLAGS, experiment_from_flags, run_main
from launch.topology import TOPOLOGY, parse_topology, prepare_process
from models.errors import UserError

_JSON = flags.DEFINE_string("json", None, "File to write the figures to.")
_TRIES = flags.DEFINE_integer("tries", 3, "Alternatives to compile where the step does not fit.")

# Exit code of a plan that does not fit.
EXIT_DOES_NOT_FIT = 1


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; write --exp=NAME.")
    parse_topology(TOPOLOGY.value)
    experiment = experiment_from_flags()
    prepare_process(TOPOLOGY.value)
    console = Console(width=100, highlight=False)
    figures = make_plan(experiment, TOPOLOGY.value, _TRIES.value, console)
    if _JSON.value:
        pathlib.Path(_JSON.value).write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if figures["fits"] else EXIT_DOES_NOT_FIT


def make_plan(
    experiment: Experiment, topology: str, tries: int, console: Console
) -> dict[str, Any]:
    """Compiles, prints and returns the figures; tries alternatives where it does not fit."""
    from launch.alternatives import alternatives
    from launch.compiled_step import TooLarge, abstract_state, compile_step, shard_bytes
    from launch.topology import find_devices

    devices, chip = find_devices(topology)
    step = compile_step(experiment, devices, chip.memory)
    if not isinstance(step, TooLarge):
        figures = figures_of(experiment, topology, step, chip)
        print_figures(console, figures)
        return figures
    console.print(
        f"{experiment.name}, {experiment.scale} scale, does not fit {topology}: a device would "
        f"need {_gb(step.used)} of {_gb(step.capacity)} (compiled in {step.compile_s:.0f} s)."
    )
    state_bytes = shard_bytes(abstract_state(experiment, devices))
    options = alternatives(experiment, len(devices), state_bytes, step.used, step.capacity)
    for option in itertools.islice(options, tries):
        try:
            step = compile_step(option.experiment, devices, chip.memory)
        except UserError:
            continue
        if not isinstance(step, TooLarge):
            console.print(f"Nearest that fits: {option.flags}")
            figures = figures_of(option.experiment, topology, step, chip)
            print_figures(console, figures)
            return figures | {"fits": False, "nearest": list(option.settings)}
        console.print(f"Does not fit either: {option.flags} ({_gb(step.used)})")
    console.print(
        "No alternative that was tried fits; give more devices (--topology), or more --tries."
    )
    return {"exp": experiment.name, "topology": topology, "fits": False, "nearest": None}


def figures_of(experiment: Experiment, topology: str, step: Any, chip: Any) -> dict[str, Any]:
    """The plan as JSON: memory, work, time of a step, and what the whole budget takes."""
    from launch.predict import predict

    found = predict(step.kernels, chip)
    budget = parse_budget(experiment.budget)
    step_s = found.step_s
    steps = int(budget.amount if budget.unit == "steps" else budget.amount / step_s)
    tokens = tokens_per_batch(experiment.data, experiment.train.batch_size)
    return {
        "exp": experiment.name,
        "scale": experiment.scale,
        "topology": topology,
        "devices": step.devices,
        "mesh": experiment.mesh.sizes(step.devices),
        "batch_size": experiment.train.batch_size,
        "fits": True,
        "compile_s": step.compile_s,
        "memory": {**step.memory, "total": sum(step.memory.values()), "chip": chip.memory},
        "chip": chip.name,
        **{f"prediction_{name}": value for name, value in dataclasses.asdict(found).items()},
        "step_s": step_s,
        "bound": found.bound,
        "utilisation": found.flops / chip.product_rate("bf16") / step_s,
        "tokens_per_s": tokens / step_s,
        "budget": experiment.budget,
        "steps": steps,
        "total_s": steps * step_s,
        "chip_hours": steps * step_s * step.devices / 3600,
    }


def print_figures(console: Console, figures: dict[str, Any]) -> None:
    """The plan as a table."""
    mesh = " x ".join(f"{name} {size}" for name, size in figures["mesh"].items() if size > 1)
    table = Table(title=f"{figures['exp']}, {figures['scale']} scale, on {figures['topology']}")
    table.add_column("figure", style="bold")
    table.add_column("value", justify="right")
    table.add_column("how it was found", overflow="fold")
    for row in rows(figures, mesh or "one device"):
        table.add_row(*row)
    console.print(table)


def rows(figures: dict[str, Any], mesh: str) -> list[tuple[str, str, str]]:
    """(figure, value, how it was found)."""
    memory = figures["memory"]
    found = [
        ("fits", "yes", f"{figures['devices']} devices ({mesh}), batch {figures['batch_size']}"),
        (
            "memory of a device",
            _gb(memory["total"]),
            f"{100 * memory['total'] / memory['chip']:.0f} % of {_gb(memory['chip'])}, as compiled",
        ),
    ]
    found += [
        (f"  {kind}", _gb(nbytes), "")
        for kind, nbytes in memory.items()
        if kind not in ("total", "chip") and nbytes > 1e5
    ]
    found += [
        ("FLOPs of a step", f"{figures['prediction_flops']:.3g}", "products, on each device"),
        ("bytes of a step", _gb(figures["prediction_nbytes"]), "main memory, each device"),
    ]
    found += [
        (f"  sent, {kind}", _gb(nbytes), "by each device, as a ring does")
        for kind, nbytes in figures["prediction_sent"].items()
    ]
    parts = ", ".join(
        f"{name} {1e3 * figures[f'prediction_{key}']:.1f}"
        for name, key in (
            ("products", "compute_s"),
            ("memory", "memory_s"),
            ("network", "network_s"),
            ("starting kernels", "kernels_s"),
        )
        if figures[f"prediction_{key}"] > 5e-5
    )
    found.append(
        (
            "step time, roofline",
            f"{1e3 * figures['step_s']:.1f} ms",
            f"bound by {figures['bound']}; ms: {parts}",
        )
    )
    if compiler_s := figures["prediction_compiler_s"]:
        found.append(
            (
                "  compiler's estimate",
                f"{1e3 * compiler_s:.1f} ms",
                "cycles it writes into the program, without collectives",
            )
        )
    found += [
        (
            "utilisation",
            f"{100 * figures['utilisation']:.0f} %",
            "products over the chip's bfloat16 peak",
        ),
        ("tokens (images)/s", f"{figures['tokens_per_s']:,.0f}", "all devices"),
        (
            "whole run",
            _duration(figures["total_s"]),
            f"{figures['steps']:,} steps for {figures['budget']}, training alone",
        ),
        (
            "chip-hours",
            f"{figures['chip_hours']:,.1f}",
            f"{figures['devices']} devices for that time",
        ),
        ("compiled in", f"{figures['compile_s']:.0f} s", "the experiment's own step"),
    ]
    return found


def _gb(nbytes: float) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e7 else f"{nbytes / 1e6:.2f} MB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    run_main(main, RUN_FLAGS)
