"""`python -m launch.scaling`: weak and strong scaling of step programs, from plans alone.

Compiles the real training step of BERT, T5-base and a T5 of XL size for a TPU v5p slice and draws
the predicted step time on 8 to 4,096 chips, and where collectives start to dominate. Nothing is
run.

Where every chip has all parameters, what it does follows from its share of the batch, so that
larger slices with the same share are not compiled: in the program of a small slice only the groups
grow over which replicas sum. `--whole` compiles every slice itself, to check that rule. Where
parameters are in shards the compiler chooses anew for each slice what it gathers and what it sums,
and each is compiled.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments.config import Experiment
from experiments.launch import run_main
from models.config import T5Config
from models.errors import UserError

_OUT = flags.DEFINE_string("out", "scaling", "PNG and JSON, without the ending.")
_ONLY = flags.DEFINE_list("models", ["bert", "t5_base", "t5_xl"], "Models to plan.")
_CHIPS = flags.DEFINE_list("chips", ["8", "64", "512", "4096"], "Sizes of the slice.")
_WHOLE = flags.DEFINE_bool("whole", False, "Compiles for every slice, not for a smaller one.")

# v5p slices are three-dimensional tori.
SLICES = {
    8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8", 256: "4x8x8", 512: "8x8x8",
    1024: "8x8x16", 2048: "8x16x16", 4096: "16x16x16",
}  # fmt: skip
# Examples of each chip in weak scaling, and at most at a time; of all of them in strong scaling.
_EACH, _ALL = 8, 4096
# Chips from which strong scaling is shown.
_FROM = 64
# Sharded parameters lie on so many chips, and others repeat them.
_SHARDS = 8


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
    """The experiment on a slice of so many chips; a mesh without data=-1 shards parameters."""
    # A chip has at most the examples of weak scaling in its memory at a time.
    parts = max(batch_size // (_EACH * chips), 1)
    train = dataclasses.replace(experiment.train, batch_size=batch_size, microbatches=parts)
    mesh = experiment.mesh
    if mesh.data != -1:
        mesh = dataclasses.replace(mesh, fsdp=_SHARDS, data=chips // _SHARDS)
    return dataclasses.replace(experiment, train=train, mesh=mesh)


def chips_compiled(experiment: Experiment, chips: int) -> int:
    """Chips of the slice that tells what one chip of so many does."""
    return 8 if experiment.mesh.data == -1 else chips


def plan_all(
    names: Sequence[str], sizes: Sequence[int], kept: pathlib.Path, console: Console, whole: bool
) -> list[dict[str, Any]]:
    """One row for each model, slice and kind of scaling.

    Compiled programs' costs are kept in a file as they come, and not compiled again.
    """
    from launch.chips import find_chip

    costs = json.loads(kept.read_text()) if kept.exists() else {}
    chip, known, rows = find_chip("v5p"), models(), []
    for name in names:
        for chips in sizes:
            for kind, batch_size in (("weak", _EACH * chips), ("strong", _ALL)):
                # On fewer chips a step is that of weak scaling, many times over.
                if kind == "strong" and not _FROM <= chips <= _ALL:
                    continue
                small = chips if whole else chips_compiled(known[name], chips)
                experiment = at_size(known[name], small, batch_size // chips * small)
                key = f"{name}, {small} chips, batch {experiment.train.batch_size}: "
                key += hashlib.sha256(repr(experiment).encode()).hexdigest()[:8]
                if key not in costs:
                    costs[key] = cost_of_step(experiment, SLICES[small])
                    kept.write_text(json.dumps(costs, indent=1) + "\n")
                    console.print(f"{key} compiled in {costs[key]['compile_s']:.0f} s")
                row = {"model": name, "chips": chips, "kind": kind, "batch_size": batch_size}
                row |= {"compiled_chips": small, "fits": costs[key]["fits"]}
                if row["fits"]:
                    full = at_size(known[name], chips, batch_size).mesh
                    grown = grow(
                        costs[key]["collectives"],
                        experiment.mesh.sizes(small),
                        full.sizes(chips),
                    )
                    row["network_s"] = network_seconds(grown, chip)
                    row["sent"] = sum(one["times"] * one["sent"] for one in grown)
                    row["step_s"] = costs[key]["kernels_s"] + row["network_s"]
                rows.append(row)
    return rows


def cost_of_step(experiment: Experiment, shape: str) -> dict[str, Any]:
    """What the step compiled for a v5p slice of this shape takes: kernels and collectives."""
    from launch.compiled_step import CompiledStep, compile_step
    from launch.cost import COLLECTIVES
    from launch.predict import predict
    from launch.topology import find_devices

    devices, chip = find_devices(f"v5p:{shape}")
    step = compile_step(experiment, devices, chip.memory)
    if not isinstance(step, CompiledStep):
        return {"fits": False, "memory": step.used, "compile_s": step.compile_s}
    found = predict(step.kernels, chip)
    return {
        "fits": True,
        "memory": sum(step.memory.values()),
        "compile_s": step.compile_s,
        "kernels_s": found.step_s - found.network_s,
        "collectives": [
            {"opcode": one.opcode, "times": one.times, "sent": one.sent, "group": one.group}
            for one in step.kernels
            if one.opcode in COLLECTIVES
        ],
    }


def grow(
    collectives: Sequence[dict[str, Any]], small: Mapping[str, int], full: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The collectives of a step on a mesh that differs from the compiled one in `data` alone.

    Groups along `data` grow with it. What they sum are gradients, of the same size on any mesh, so
    that a chip sends (group − 1) / group of it.

    Raises:
      ValueError: a group that is not made of `data`.
    """
    data = small["data"]
    if full["data"] == data:
        return list(collectives)
    grown = []
    for one in collectives:
        group = one["group"]
        if group != data:
            raise ValueError(f"{one['opcode']} over {group} of {dict(small)}: of which axes?")
        larger = group * full["data"] // data
        ratio = (1 - 1 / larger) / (1 - 1 / group)
        grown.append(one | {"group": larger, "sent": one["sent"] * ratio})
    return grown


def network_seconds(collectives: Sequence[dict[str, Any]], chip: Any) -> float:
    """Seconds of all collectives of a step, one after the other."""
    from launch.cost import Kernel
    from launch.predict import collective_s

    return sum(
        one["times"] * collective_s(Kernel(**one, flops=0, dtype="", nbytes=0, cycles=0), chip)
        for one in collectives
    )


def draw(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
    """Step time over chips, weak and strong, and the network's share of it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker
    from matplotlib.lines import Line2D

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.9), constrained_layout=True)
    titles = (
        f"Weak: {_EACH} examples a chip",
        f"Strong: {_ALL:,} examples in all",
        "Share of the collectives",
    )
    shown = {"bert": "BERT-base", "t5_base": "T5-base", "t5_xl": "T5-XL size, in shards"}
    for name in dict.fromkeys(row["model"] for row in rows):
        for panel, kind, style in zip(panels, ("weak", "strong"), ("o-", "s--"), strict=False):
            mine = [r for r in rows if r["model"] == name and r["kind"] == kind and r["fits"]]
            mine.sort(key=lambda row: row["chips"])
            if not mine:
                continue
            chips = [row["chips"] for row in mine]
            times = [1e3 * row["step_s"] for row in mine]
            (line,) = panel.plot(chips, times, style, label=shown[name], color=_COLORS[name])
            if kind == "strong":
                ideal = [times[0] * chips[0] / count for count in chips]
                panel.plot(chips, ideal, ":", color=line.get_color(), linewidth=1)
            share = [100 * row["network_s"] / row["step_s"] for row in mine]
            panels[2].plot(chips, share, style, color=line.get_color())
    for panel, title in zip(panels, titles, strict=True):
        panel.set(xscale="log", xlabel="TPU v5p chips", title=title)
        panel.set_xticks(sorted({row["chips"] for row in rows}))
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        panel.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        panel.grid(alpha=0.3)
    # Times of weak scaling lie within a decade, where a logarithmic axis would have no labels.
    panels[0].set(ylabel="predicted step, ms", ylim=(0, None))
    panels[1].set(ylabel="predicted step, ms", yscale="log")
    panels[1].yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    panels[0].legend(fontsize=8, loc="upper right")
    panels[1].legend(
        [Line2D([], [], ls=":", color="gray")], ["twice the chips, half the time"], fontsize=8
    )
    kinds = [Line2D([], [], marker=m, ls=s, color="gray") for m, s in (("o", "-"), ("s", "--"))]
    panels[2].legend(kinds, ["weak", "strong"], fontsize=8)
    panels[2].axhline(50, color="gray", linewidth=0.8)
    panels[2].set(ylabel="% of the predicted step", ylim=(0, 100))
    figure.suptitle(
        "Planned, not run: rooflines of compiled steps, nothing overlapped", fontsize=11
    )
    figure.savefig(path, dpi=100)
    plt.close(figure)


_COLORS = {"bert": "tab:blue", "t5_base": "tab:orange", "t5_xl": "tab:green"}


def main(argv: Sequence[str]) -> int:
    # Not at the top: it has a flag that means nothing here.
    from launch.topology import prepare_process

    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag.")
    sizes = sorted(int(text) for text in _CHIPS.value if text.isdigit())
    if len(sizes) != len(_CHIPS.value) or not set(sizes) <= set(SLICES):
        raise UserError(
            f"--chips {','.join(_CHIPS.value)}: known are {', '.join(map(str, SLICES))}."
        )
    if unknown := set(_ONLY.value) - set(models()):
        raise UserError(f"--models {', '.join(unknown)}: known are {', '.join(models())}.")
    prepare_process("v5p:2x2x2")
    console = Console(width=100, highlight=False)
    out = pathlib.Path(_OUT.value)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = plan_all(_ONLY.value, sizes, out.with_suffix(".json"), console, _WHOLE.value)
    draw(rows, out.with_suffix(".png"))
    table = Table(title=str(out.with_suffix(".png")))
    for column in ("model", "kind", "chips", "batch", "step, ms", "collectives", "compiled for"):
        table.add_column(column, justify="left" if column in ("model", "kind") else "right")
    for row in rows:
        step = f"{1e3 * row['step_s']:.1f}" if row["fits"] else "does not fit"
        share = f"{100 * row['network_s'] / row['step_s']:.0f} %" if row["fits"] else ""
        values = (row["model"], row["kind"], f"{row['chips']:,}", f"{row['batch_size']:,}")
        table.add_row(*values, step, share, f"{row['compiled_chips']} chips")
    console.print(table)
    return 0


if __name__ == "__main__":
    run_main(main)
