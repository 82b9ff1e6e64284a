"""`python -m launch.scaling`: weak and strong scaling of step programs, from plans alone.

Compiles the real training step of BERT, T5-base and T5-XL for TPU v5p slices of growing size and
draws the predicted step time, and where the collectives start to dominate. Nothing is run.
"""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any, cast

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.config import Experiment
from experiments.launch import run_main
from launch.topology import prepare_process
from models.config import T5Config
from models.errors import UserError

_OUT = flags.DEFINE_string("out", "scaling", "PNG and JSON, without the ending.")
_ONLY = flags.DEFINE_list("models", ["bert", "t5_base", "t5_xl"], "Models to plan.")
_CHIPS = flags.DEFINE_list("chips", ["8", "64", "512", "4096"], "Sizes of the slice.")

# v5p slices are three-dimensional tori.
SLICES = {8: "2x2x2", 16: "2x2x4", 64: "4x4x4", 256: "4x8x8", 512: "8x8x8", 4096: "16x16x16"}
# Examples of each chip in weak scaling, and of all of them in strong scaling.
_EACH, _ALL = 8, 4096


def models() -> dict[str, Experiment]:
    """The experiments whose steps are planned; T5-XL keeps its parameters in shards."""
    from experiments.registry import resolve

    bert, t5 = resolve("bert_baseline", "paper"), resolve("dense_t5", "paper")
    # T5 v1.1-XL (github.com/google-research/text-to-text-transfer-transformer, released models).
    large = dataclasses.replace(
        cast(T5Config, t5.model),
        model_dim=2048,
        mlp_dim=5120,
        num_heads=32,
        num_encoder_layers=24,
        num_decoder_layers=24,
        remat="full",
    )
    sharded = dataclasses.replace(t5.mesh, data=1, fsdp=1)
    return {
        "bert": bert,
        "t5_base": t5,
        "t5_xl": dataclasses.replace(t5, model=large, mesh=sharded),
    }


def at_size(experiment: Experiment, chips: int, batch_size: int) -> Experiment:
    """The experiment on a slice of so many chips; sharded parameters lie on 64 of them at most."""
    # A chip has at most the examples of weak scaling in its memory at a time.
    parts = max(batch_size // (_EACH * chips), 1)
    train = dataclasses.replace(experiment.train, batch_size=batch_size, microbatches=parts)
    mesh = experiment.mesh
    if mesh.data != -1:
        shards = min(chips, 64)
        mesh = dataclasses.replace(mesh, fsdp=shards, data=chips // shards)
    return dataclasses.replace(experiment, train=train, mesh=mesh)


def plan_all(
    names: Sequence[str], sizes: Sequence[int], known_rows: pathlib.Path, console: Console
) -> list[dict[str, Any]]:
    """One row for each model, slice and kind of scaling.

    Rows are kept in a file as they come, and those that it has are not planned again.
    """
    from launch.compiled_step import CompiledStep, compile_step
    from launch.predict import predict
    from launch.topology import find_devices

    rows = json.loads(known_rows.read_text()) if known_rows.exists() else []
    done, known = {(row["model"], row["chips"], row["kind"]) for row in rows}, models()
    for name in names:
        for chips in sizes:
            devices, chip = find_devices(f"v5p:{SLICES[chips]}")
            for kind, batch_size in (("weak", _EACH * chips), ("strong", _ALL)):
                experiment = at_size(known[name], chips, batch_size)
                if batch_size < chips or (name, chips, kind) in done:
                    continue
                step = compile_step(experiment, devices, chip.memory)
                row = {"model": name, "chips": chips, "kind": kind, "batch_size": batch_size}
                if isinstance(step, CompiledStep):
                    found = predict(step.kernels, chip)
                    row |= {
                        "fits": True,
                        "step_s": found.step_s,
                        "network_s": found.network_s,
                        "sent": sum(found.sent.values()),
                        "memory": sum(step.memory.values()),
                        "compile_s": step.compile_s,
                    }
                else:
                    row |= {"fits": False, "memory": step.used}
                rows.append(row)
                known_rows.write_text(json.dumps(rows, indent=1) + "\n")
                console.print(row)
    return rows


def draw(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
    """Step time over chips, weak and strong, and the network's share of it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    figure, panels = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    titles = {
        "weak": f"Weak: {_EACH} examples a chip",
        "strong": f"Strong: {_ALL:,} examples in all",
        "share": "Share of the collectives",
    }
    for name in dict.fromkeys(row["model"] for row in rows):
        for panel, kind in zip(panels, ("weak", "strong"), strict=False):
            mine = [r for r in rows if r["model"] == name and r["kind"] == kind and r["fits"]]
            if not mine:
                continue
            mine.sort(key=lambda row: row["chips"])
            chips = [row["chips"] for row in mine]
            line = panel.plot(chips, [1e3 * row["step_s"] for row in mine], "o-", label=name)
            share = [100 * row["network_s"] / row["step_s"] for row in mine]
            style = "o-" if kind == "weak" else "s--"
            panels[2].plot(chips, share, style, color=line[0].get_color(), label=f"{name}, {kind}")
    for panel, title in zip(panels, titles.values(), strict=True):
        panel.set(xscale="log", xlabel="TPU v5p chips", title=title)
        panel.set_xticks(sorted({row["chips"] for row in rows}))
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_minor_formatter(lambda value, _: f"{value:g}")
        panel.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    for panel in panels[:2]:
        panel.set(ylabel="predicted step time, ms", yscale="log")
    panels[2].set(ylabel="% of the predicted step", ylim=(0, 100))
    figure.suptitle("Planned, not run: rooflines of steps compiled for each slice")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str]) -> int:
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag.")
    sizes = [int(text) for text in _CHIPS.value if text.isdigit()]
    if len(sizes) != len(_CHIPS.value) or not set(sizes) <= set(SLICES):
        raise UserError(
            f"--chips {','.join(_CHIPS.value)}: known are {', '.join(map(str, SLICES))}."
        )
    if unknown := set(_ONLY.value) - set(models()):
        raise UserError(f"--models {', '.join(unknown)}: known are {', '.join(models())}.")
    prepare_process("v5p:2x2x2")
    console = Console(width=120, highlight=False)
    out = pathlib.Path(_OUT.value)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = plan_all(_ONLY.value, sizes, out.with_suffix(".json"), console)
    draw(rows, out.with_suffix(".png"))
    table = Table("model", "chips", "kind", "batch", "step", "collectives", title=str(out))
    for row in rows:
        step = f"{1e3 * row['step_s']:.1f} ms" if row["fits"] else "does not fit"
        share = f"{100 * row['network_s'] / row['step_s']:.0f} %" if row["fits"] else ""
        values = (row["model"], row["chips"], row["kind"], row["batch_size"], step, share)
        table.add_row(*(str(value) for value in values))
    console.print(table)
    return 0


if __name__ == "__main__":
    run_main(main)
