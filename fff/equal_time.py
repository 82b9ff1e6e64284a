"""How wide a dense feedforward layer is that takes the time of a fast one on this device.

`python -m fff.equal_time --trees=1 --depth=11 --model_dim=768 --tokens=16384` measures it anew.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fff.config import FFFConfig
from models.errors import UserError

# Widths that are timed; between two of them time is taken to grow linearly.
_WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
_SECONDS = 4.0


def equal_time_width(cfg: FFFConfig, model_dim: int, tokens: int) -> int:
    """Returns the width: as stored for this machine, or measured now, in about 10 s, and stored.

    The forward pass of one warm layer over `tokens` tokens in float32 counts. Measuring is done in
    a process of its own, so that this one needs no JAX and leaves nothing behind. Raises UserError
    if it fails.
    """
    key = f"{cfg.trees}x{cfg.depth} width {model_dim} tokens {tokens}"
    known = _read().get(key)
    if known is not None:
        return int(known["width"])
    command = [sys.executable, "-m", "fff.equal_time", "--store"]
    for name, value in (
        ("trees", cfg.trees),
        ("depth", cfg.depth),
        ("model_dim", model_dim),
        ("tokens", tokens),
    ):
        command.append(f"--{name}={value}")
    root = str(Path(__file__).parent.parent)
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"the dense width of equal time could not be measured: {last}")
    return int(json.loads(done.stdout.splitlines()[-1])["width"])


def measure(cfg: FFFConfig, model_dim: int, tokens: int) -> dict[str, Any]:
    """Returns the width, and the seconds of the fast layer and of each dense one."""
    import jax

    from fff.interleave import interleave, ratio
    from fff.kernels import choose_kernel, hard_path
    from fff.random_tables import random_dense, random_tables, random_tokens
    from models.layers import ACTIVATIONS

    x_TD, tables = random_tokens(tokens, model_dim), random_tables(cfg, model_dim)
    kernel = choose_kernel(cfg)
    fast = jax.jit(lambda x, tables: hard_path(cfg, x, tables, kernel))
    dense = jax.jit(lambda x, wi, wo: ACTIVATIONS[cfg.activation](x @ wi) @ wo)
    calls = {"fff": partial(fast, x_TD, tables)}
    for width in _WIDTHS:
        weights = random_dense(model_dim, width)
        calls[str(width)] = partial(dense, x_TD, *weights)
        # Once a dense layer takes twice as long, wider ones need not be tried.
        pair = interleave({"fff": calls["fff"], "dense": calls[str(width)]}, 0, rounds=3)
        if ratio(pair, "dense", "fff") > 2:
            break
    times = interleave(calls, _SECONDS)
    widths = [int(name) for name in times if name != "fff"]
    ratios = [ratio(times, str(width), "fff") for width in widths]
    width = round(float(np.interp(1.0, np.maximum.accumulate(ratios), widths)))
    seconds = {name: float(np.median(values)) for name, values in times.items()}
    return {"width": width, "kernel": kernel, "seconds": seconds}


def store(cfg: FFFConfig, model_dim: int, tokens: int, measured: dict[str, Any]) -> None:
    """Keeps a measurement for later runs on this machine, where the cache can be written to."""
    key = f"{cfg.trees}x{cfg.depth} width {model_dim} tokens {tokens}"
    path = _path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(_read() | {key: measured}, file, indent=1)
        os.replace(file.name, path)
    except OSError as error:
        print(f"{path}: not stored ({error.strerror})", file=sys.stderr)


def _read() -> dict[str, Any]:
    try:
        return json.loads(_path().read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        # Nothing yet, or what somebody cut off: it is measured anew.
        return {}


def _path() -> Path:
    """Names the file by what decides the times: the processor, and how many cores are ours."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    folder = Path(os.environ.get("KPD_CACHE") or "~/.cache/kpd").expanduser() / "fff"
    return folder / f"equal-time-{platform.node()}-{platform.machine()}-{cores}.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("trees", "depth", "model_dim", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--store", action="store_true", help="keep the result for later runs")
    arguments = parser.parse_args()
    cfg = FFFConfig(trees=arguments.trees, depth=arguments.depth)
    try:
        cfg.check()
        if min(arguments.model_dim, arguments.tokens) < 1:
            raise UserError("--model_dim and --tokens: must be at least 1.")
    except UserError as error:
        parser.exit(2, f"{error}\n")
    measured = measure(cfg, arguments.model_dim, arguments.tokens)
    if arguments.store:
        store(cfg, arguments.model_dim, arguments.tokens, measured)
    print(json.dumps(measured))


if __name__ == "__main__":
    # Before JAX starts its threads.
    from models.allocator import keep_freed_memory

    keep_freed_memory()
    main()
