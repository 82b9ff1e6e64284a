"""Runs the comparison: verification, one hot layer, layers in turn, the whole model."""

import dataclasses
import os
import pathlib
import platform
import statistics
import zipfile
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fff import build, xla
from fff.benchmark import model as whole_model
from fff.benchmark import verify
from fff.benchmark.variants import (
    Variant,
    fast_variants,
    gemm_variants,
    has_torch,
    level_variants,
)
from fff.config import FFFConfig
from fff.interleave import interleave, ratio
from fff.kernels import choose_kernel, hard_path
from fff.random_tables import random_dense, random_tables, random_tokens
from fff.tables import Tables, check_tables
from models.errors import UserError
from models.layers import ACTIVATIONS

# The dense layers of UltraFastBERT's comparison, for a width of 768.
DENSE_WIDTHS = (3072, 4095)
_EQUAL_TIME_WIDTHS = (8, 16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is compared."""

    cfg: FFFConfig
    model_dim: int
    tokens: tuple[int, ...]
    layers: int
    # Trained tables and the tokens that came to them; None draws both.
    tables: pathlib.Path | None
    seconds: float
    quick: bool


def run(settings: Settings) -> dict[str, Any]:
    """Returns everything that was measured, as JSON."""
    cfg = settings.cfg
    x_TD, tables = _inputs(settings)
    dense = {width: random_dense(settings.model_dim, width) for width in DENSE_WIDTHS}
    node_TKL = np.asarray(xla.walk(cfg, x_TD, tables).node_TKL)
    results: dict[str, Any] = {
        "machine": _machine(),
        "trees": f"{cfg.trees}x{cfg.depth}",
        "model_dim": settings.model_dim,
        "inputs": str(settings.tables) if settings.tables else "random",
        "routing": verify.leaves_used(cfg, node_TKL),
        "roofline": _roofline(tables, settings.seconds),
        "hot": [],
        "in_turn": [],
    }
    for count in settings.tokens:
        print(f"one layer, {count:,} tokens", flush=True)
        results["hot"].append(_hot(settings, x_TD[:count], tables, dense))
    for count in settings.tokens:
        # At more tokens weights are read once for many, wherever they come from.
        if count <= 1024:
            print(f"{settings.layers} layers in turn, {count:,} tokens", flush=True)
            results["in_turn"].append(_in_turn(settings, x_TD[:count]))
    print("the whole model", flush=True)
    results["model"] = whole_model.time_models(
        cfg, layers=2 if settings.quick else 16, seconds=settings.seconds
    )
    return results


def _inputs(settings: Settings) -> tuple[jax.Array, Tables]:
    if settings.tables is None:
        x_TD = random_tokens(max(settings.tokens), settings.model_dim)
        return x_TD, random_tables(settings.cfg, settings.model_dim)
    try:
        with np.load(settings.tables) as file:
            x, *found = (jnp.asarray(file[name]) for name in ("x", "node_in", "bias", "node_out"))
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise UserError(
            f"--tables={settings.tables}: not what experiments.fff_tables writes ({error})."
        ) from None
    tables = Tables(*found)
    if x.ndim != 2 or not len(x):
        raise UserError(f"--tables={settings.tables}: tokens x of shape {x.shape}, not (T, D).")
    if x.shape[1] != settings.model_dim:
        raise UserError(f"--model_dim={settings.model_dim}: the tokens have {x.shape[1]}.")
    check_tables(settings.cfg, x, tables)
    # Where there are too few, the same tokens come again, each time in another order.
    repeats = -(-max(settings.tokens) // len(x))
    generator = np.random.default_rng(0)
    order = np.concatenate([generator.permutation(len(x)) for _ in range(repeats)])
    return x[order[: max(settings.tokens)]], tables


def _hot(settings: Settings, x_TD: jax.Array, tables: Tables, dense: Any) -> dict[str, Any]:
    """One layer whose weights are as near as they can be, every form of it in turn."""
    x, cfg = np.asarray(x_TD), settings.cfg
    fast = fast_variants(cfg, x_TD, tables)
    errors = {variant.name: verify.check_fast(cfg, variant, x, tables) for variant in fast}
    libraries = ("XLA", "NumPy", "torch") if jax.default_backend() == "cpu" else ("XLA",)
    slow: list[Variant] = []
    for width, weights in dense.items():
        found = gemm_variants(x_TD, weights, libraries)
        if width == DENSE_WIDTHS[0] and jax.default_backend() == "cpu":
            found += level_variants(x_TD, weights)
        for variant in found:
            errors[f"{variant.name} {variant.layer}"] = verify.check_dense(variant, x, weights)
        slow += found
    variants = {f"{v.name} {v.layer}" if v.layer != "fff" else v.name: v for v in (*fast, *slow)}
    rounds = 3 if settings.quick or len(x) > 4096 else 7
    times = interleave({name: v.call for name, v in variants.items()}, settings.seconds, rounds)
    return {
        "tokens": len(x),
        "rows": [
            {
                "name": name,
                "layer": variant.layer,
                "level": variant.level,
                "tokens": variant.tokens,
                "seconds": statistics.median(times[name]),
                "us_per_token": 1e6 * statistics.median(times[name]) / variant.tokens,
                "gflops": 1e-9 * variant.flops / statistics.median(times[name]),
                "row_gb_per_s": 1e-9 * variant.row_bytes / statistics.median(times[name]),
                "row_bytes_per_token": variant.row_bytes / variant.tokens,
                "resident_bytes": variant.resident_bytes,
                "largest_error": errors[name],
            }
            for name, variant in variants.items()
        ],
        # Speed-up of each fast form over each dense one, per token.
        "speedup": {
            name: {
                other: ratio(times, other, name) * len(x) / variants[other].tokens
                for other in variants
                if variants[other].level != "fff"
            }
            for name in variants
            if variants[name].level == "fff"
        },
        "equal_time_width": _equal_time(x_TD, cfg, tables),
    }


def _equal_time(x_TD: jax.Array, cfg: FFFConfig, tables: Tables) -> float:
    """The width of the dense layer, one XLA product over all tokens, of the best form's time."""
    kernel = choose_kernel(cfg)
    fast = jax.jit(lambda x, tables: hard_path(cfg, x, tables, kernel))
    dense = jax.jit(lambda x, wi, wo: ACTIVATIONS["gelu"](x @ wi) @ wo)
    calls: dict[str, Callable[[], Any]] = {"fff": lambda: fast(x_TD, tables)}
    for width in _EQUAL_TIME_WIDTHS:
        weights = random_dense(x_TD.shape[1], width)
        calls[str(width)] = partial(dense, x_TD, *weights)
    times = interleave(calls, 0.0, rounds=3)
    ratios = [ratio(times, str(width), "fff") for width in _EQUAL_TIME_WIDTHS]
    return float(np.interp(1.0, np.maximum.accumulate(ratios), _EQUAL_TIME_WIDTHS))


def _in_turn(settings: Settings, x_TD: jax.Array) -> dict[str, Any]:
    """Layers with weights of their own inside one program: their weights come from memory."""
    cfg, width = settings.cfg, settings.model_dim
    kernel = choose_kernel(cfg)
    seeds = range(settings.layers)
    tables = [random_tables(cfg, width, seed=seed) for seed in seeds]
    halved = [random_tables(cfg, width, "bfloat16", seed=seed) for seed in seeds]
    matrices = [random_dense(width, DENSE_WIDTHS[0], seed) for seed in seeds]

    def through(layer: Callable[..., jax.Array]) -> Any:
        def program(x: jax.Array, weights: Any) -> jax.Array:
            for own in weights:
                x += 1e-3 * layer(x, own)
            return x

        return jax.jit(program)

    def fast(kernel: str) -> Any:
        return through(lambda x, own: hard_path(cfg, x, own, kernel))

    best, gather = fast(kernel), fast("xla")
    dense = through(lambda x, own: ACTIVATIONS["gelu"](x @ own[0]) @ own[1])
    calls: dict[str, Callable[[], Any]] = {
        f"FFF, {kernel}": lambda: best(x_TD, tables),
        f"FFF, {kernel}, bfloat16": lambda: best(x_TD, halved),
        f"FFF, {kernel}, one layer's weights": lambda: best(x_TD, [tables[0]] * settings.layers),
        "FFF, xla": lambda: gather(x_TD, tables),
        "dense 3072, XLA": lambda: dense(x_TD, matrices),
    }
    if jax.default_backend() == "cpu":
        own = [tuple(np.asarray(matrix) for matrix in pair) for pair in matrices]
        calls["dense 3072, NumPy"] = lambda: _numpy_layers(np.asarray(x_TD), own)
    times = interleave(calls, settings.seconds, 3 if settings.quick else 7)
    return {
        "tokens": len(x_TD),
        "layers": settings.layers,
        "us_per_layer": {
            name: 1e6 * statistics.median(values) / settings.layers
            for name, values in times.items()
        },
        "speedup": {
            other: ratio(times, other, f"FFF, {kernel}")
            for other in times
            if other != f"FFF, {kernel}"
        },
    }


def _numpy_layers(x: np.ndarray, matrices: Any) -> np.ndarray:
    from scipy.special import erf

    for wi, wo in matrices:
        h = x @ wi
        h *= 0.5 * (1.0 + erf(h * np.float32(0.5**0.5)))
        x = x + np.float32(1e-3) * (h @ wo)
    return x


def _roofline(tables: Tables, seconds: float) -> dict[str, float]:
    """What this machine reads and multiplies, measured in this run."""
    read = jax.jit(lambda a, b: jnp.sum(a) + jnp.sum(b))
    large = jnp.ones((64, 2**20), jnp.float32)
    square = random_dense(2048, 2048)[0]
    multiply = jax.jit(lambda a: a @ a)
    times = interleave(
        {
            "tables": lambda: read(tables.in_ND, tables.out_ND),
            "memory": lambda: read(large, square),
            "product": lambda: multiply(square),
        },
        seconds,
    )
    best = {name: statistics.median(values) for name, values in times.items()}
    return {
        "tables_bytes": tables.in_ND.nbytes + tables.out_ND.nbytes,
        "tables_gb_per_s": 1e-9 * (tables.in_ND.nbytes + tables.out_ND.nbytes) / best["tables"],
        "memory_gb_per_s": 1e-9 * (large.nbytes + square.nbytes) / best["memory"],
        "product_gflops": 1e-9 * 2 * 2048**3 / best["product"],
    }


def _machine() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = ""
    if pathlib.Path("/proc/cpuinfo").exists():
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next((x.split(": ")[1] for x in lines if x.startswith("model name")), "")
    return {
        "device": jax.devices()[0].device_kind,
        "processor": model or platform.processor(),
        "threads": cores,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "torch": has_torch(),
        "cpp_kernel": jax.default_backend() == "cpu" and build.is_available(),
    }
