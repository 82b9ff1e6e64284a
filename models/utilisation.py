"""`python -m models.utilisation`: share of a device's product rate that a training step reaches.

Model FLOPs utilisation of BERT-base and T5-base at the largest batch that fits: FLOPs of the
model's products, forward and backward, over the time of a step with AdamW, over the rate of a large
dense product of the same dtype in the same process (Chowdhery et al. 2022, arXiv 2204.02311,
appendix B, with a measured product in place of a data sheet).
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from models.allocator import keep_freed_memory
from models.api import build
from models.benchmark import CASES, our_step

_ROUNDS = 5
_SECONDS_A_ROUND = 1.0


@dataclasses.dataclass(frozen=True)
class Utilisation:
    """A training step at one batch size, and the product that it is compared with."""

    batch_size: int
    step_s: float
    flops_per_s: float
    product_flops_per_s: float

    @property
    def share(self) -> float:
        return self.flops_per_s / self.product_flops_per_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=["bert", "t5"], help="bert, t5, vit")
    parser.add_argument("--layers", type=int, default=12, help="layers (of each stack)")
    parser.add_argument("--dtype", default="bfloat16", help="of products and activations")
    parser.add_argument("--product", type=int, default=8192, help="width of the dense product")
    parser.add_argument("--largest", type=int, default=1024, help="largest batch that is tried")
    arguments = parser.parse_args()
    keep_freed_memory()
    device = jax.devices()[0].device_kind
    table = Table(title=f"{device}, {arguments.dtype}, one device")
    for column in ("model", "batch", "step", "TFLOP/s", "product TFLOP/s", "utilisation"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name in arguments.models:
        found = largest_fitting(
            name, arguments.layers, arguments.dtype, arguments.product, arguments.largest
        )
        table.add_row(
            name,
            str(found.batch_size),
            f"{1e3 * found.step_s:.1f} ms",
            f"{found.flops_per_s / 1e12:.3f}",
            f"{found.product_flops_per_s / 1e12:.3f}",
            f"{found.share:.2f}",
        )
    Console(width=100).print(table)


def largest_fitting(name: str, layers: int, dtype: str, width: int, largest: int) -> Utilisation:
    """Doubles the batch until memory is exhausted or `largest` is reached; measures the last one.

    Raises SystemExit if not even one batch of the smallest size fits.
    """
    found = None
    case = CASES[name](layers)
    cfg = dataclasses.replace(case.config, compute_dtype=dtype)
    batch_size = len(next(iter(case.batch.values())))
    batch = case.batch
    while batch_size <= largest:
        try:
            found = _measure(cfg, batch, dtype, width)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            break
        batch = {key: np.concatenate([value, value]) for key, value in batch.items()}
        batch_size *= 2
    if found is None:
        raise SystemExit(f"{name}: a batch of {batch_size} does not fit, or is above --largest.")
    return found


def _measure(cfg: Any, batch: dict[str, np.ndarray], dtype: str, width: int) -> Utilisation:
    shapes = {key: value.shape for key, value in batch.items()}
    flops = 3 * sum(build(cfg).forward_flops(shapes).values())
    step, _ = our_step(cfg, jax.device_put(batch))
    side = jax.random.normal(jax.random.key(0), (width, width), dtype)
    multiply = jax.jit(jnp.matmul)

    def product() -> None:
        jax.block_until_ready(multiply(side, side))

    seconds: dict[str, list[float]] = {"step": [], "product": []}
    runs = {"step": step, "product": product}
    repeats = {name: _repeats(run) for name, run in runs.items()}
    for _ in range(_ROUNDS):
        for name, run in runs.items():
            begun = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            seconds[name].append((time.perf_counter() - begun) / repeats[name])
    step_s = statistics.median(seconds["step"])
    return Utilisation(
        batch_size=len(next(iter(batch.values()))),
        step_s=step_s,
        flops_per_s=flops / step_s,
        product_flops_per_s=2 * width**3 / statistics.median(seconds["product"]),
    )


def _repeats(run: Callable[[], Any]) -> int:
    """How often `run`, warm, fits into a round."""
    run()
    begun = time.perf_counter()
    run()
    return max(1, round(_SECONDS_A_ROUND / (time.perf_counter() - begun)))


if __name__ == "__main__":
    main()
