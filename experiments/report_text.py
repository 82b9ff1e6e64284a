"""The table at the end of a run: every figure with what it was measured on."""

import pathlib
from typing import Any

from rich.console import Console
from rich.table import Table


def print_summary(console: Console, summary: dict[str, Any], folder: pathlib.Path) -> None:
    """Prints the figures of summary.json that a reader asks for first."""
    table = Table(title=f"{summary['exp']}, {summary['scale']} scale, seed {summary['seed']}")
    table.add_column("figure", style="bold")
    table.add_column("value", justify="right")
    table.add_column("how it was found", overflow="fold")
    for row in rows(summary):
        table.add_row(*row)
    console.print(table, soft_wrap=False)
    console.print(f"Files: {folder}", markup=False)


def rows(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(figure, value, how it was found) for every line of the table."""
    final, params, flops = summary["final"], summary["params"], summary["flops"]
    step, seconds = summary["step_time_s"], summary["seconds"]
    batches = f"{summary['validation']['examples']:,} fixed validation examples"
    found = [
        _validation_loss(final, batches),
    ]
    unigram = summary["validation"]["unigram_nll"]
    found.append(
        ("  unigram model", f"{unigram:.4f}", "frequencies of targets alone, same targets")
    )
    if "bits_per_byte" in final:
        found.append(("bits per byte", f"{final['bits_per_byte']:.4f}", "over the masked-out text"))
    if sparsity := summary["sparsity"]:
        found += _sparsity_rows(sparsity)
    embedding = f"{params['embedding']:,} of them in embeddings and logits"
    found += [
        ("parameters", f"{params['total']:,}", embedding),
        ("  not zero", f"{params['nonzero']:,}", "weights that a mask keeps, or that have none"),
        ("training FLOPs", f"{flops['dense']:.3e}", "zeros computed, as this device does"),
        ("  ideal", f"{flops['ideal']:.3e}", "zeros skipped, over the actual schedule"),
    ]
    if summary["sparsity"] and "bytes" in summary:
        found.append(_size_row(summary["bytes"]))
    if "init" in summary:
        found.append(_start_row(summary))
    if step is None:
        found.append(("step time", "n/a", "the run is shorter than the profiler's window"))
    else:
        if step["xprof"] is not None:
            found.append(("step time, XProf", f"{1e3 * step['xprof']:.2f} ms", step["note"]))
        found.append(("step time, wall", f"{1e3 * step['wall']:.2f} ms", _disagreement(step)))
    found += [
        ("steps", f"{summary['steps']:,}", f"planned from {summary['planned_from']['how']}"),
        (
            "time charged",
            f"{summary['rst_s']:.1f} s",
            f"of {summary['budget']}, in {_seconds_of(summary)}{_interval(summary)}",
        ),
        ("wall time", f"{summary['wall_s']:.1f} s", _accounts(seconds)),
        (
            "input wait",
            f"{100 * summary['input_wait_share']:.2f} %",
            _input_wait(summary),
        ),
    ]
    return found


def _validation_loss(final: dict[str, float], batches: str) -> tuple[str, str, str]:
    if "squared_error" in final:
        return "validation loss", f"{final['loss']:.4f}", f"squared error of the score, {batches}"
    return "validation loss", f"{final['nll']:.4f}", f"nats per target, {batches}"


def _size_row(sizes: dict[str, int | None]) -> tuple[str, str, str]:
    forms = {"nm": "N:M", "bitmask": "bit-mask", "csr": "CSR", "dense": "dense"}
    first, *others = (
        (form, size) for name, form in forms.items() if (size := sizes.get(name)) is not None
    )
    rest = ", ".join(f"{form} {size / 1e6:.2f} MB" for form, size in others)
    return (
        "size on disk",
        f"{first[1] / 1e6:.2f} MB",
        f"as {first[0]}, by experiments.export; {rest}",
    )


def _start_row(summary: dict[str, Any]) -> tuple[str, str, str]:
    start, total = summary["init"], summary["with_init"]
    source = start.get("run") or start.get("hugging_face")
    if total is None:
        return "started from", "", f"{source}, whose training is not counted: its cost is not known"
    seconds = "?" if total["rst_s"] is None else f"{total['rst_s']:.1f} s"
    flops = f"{total['flops']['dense']:.3e} FLOPs with zeros computed"
    return "time with its start", seconds, f"{flops}, the training of {source} counted"


def _sparsity_rows(sparsity: dict[str, Any]) -> list[tuple[str, str, str]]:
    by_path = sparsity["by_path"]

    def extreme(path: str) -> tuple[str, str]:
        asked = by_path[path]["asked"]
        aim = "under the global threshold" if asked is None else f"asked {100 * asked:.2f} %"
        return f"{100 * by_path[path]['reached']:.2f} %", f"{path}, {aim}"

    asked = f"asked {100 * sparsity['target']:.2f} %"
    if by_path[sparsity["lowest"]]["asked"] != by_path[sparsity["highest"]]["asked"]:
        asked += ", less in some than in others"
    return [
        (
            "sparsity reached",
            f"{100 * sparsity['overall']:.2f} %",
            f"of all prunable weights; {asked}",
        ),
        ("  lowest", *extreme(sparsity["lowest"])),
        ("  highest", *extreme(sparsity["highest"])),
        ("  off target", f"{sparsity['off_by']}", "weights, in the layer furthest from its target"),
    ]


def _disagreement(step: dict[str, Any]) -> str:
    if step["xprof"] is None:
        return step["note"]
    percent = 100 * (step["xprof"] / step["wall"] - 1)
    text = f"synchronised clock over the same steps; XProf says {percent:+.1f} %"
    if abs(percent) > 5:
        text += ": more than 5 % apart, so the machine was busy with something else"
    return text


def _seconds_of(summary: dict[str, Any]) -> str:
    device = summary["device"]["kind"]
    if summary.get("account") == "wall":
        return f"wall seconds of {device}, as measured before the run"
    if summary["reference"] == "here":
        return f"seconds of {device} (reference here, ratio 1)"
    return (
        f"seconds of reference {summary['reference']} ({summary['ratio']:.4g} for one second of "
        f"{device})"
    )


def _interval(summary: dict[str, Any]) -> str:
    """Between which times the charge may lie, where it was converted."""
    low, high = summary.get("rst_interval_s", (0.0, 0.0))
    if not any("converted" in how for how in summary.get("rst_how", ())):
        return ""
    return f"; converted, between {low:.1f} and {high:.1f} s"


def _input_wait(summary: dict[str, Any]) -> str:
    text = "of the training time, spent waiting for batches"
    if not summary.get("input_wait_charged"):
        return f"{text}; not charged up to 1 %"
    return f"{text}: above 1 %, and so {summary['rst_input_wait_s']:.2f} s of it are charged"


def _accounts(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {spent:.1f}" for name, spent in seconds.items() if spent >= 0.05)
