"""Simulated runs with a known truth, to test the instrument with."""

import dataclasses
import json
import math
import pathlib
import zlib
from typing import Any

import numpy as np

from experiments.comparison.curves import Curve
from experiments.comparison.runs import Conditions, Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class World:
    """How losses come about: L = floor + amplitude · (learning-rate area)^−power + heat · lr.

    The shape of Tissue et al. 2024 (arXiv 2408.11029): the area under the learning rate drives
    progress, and its decay releases the rest. A cosine without warm-up; a run's own curve and its
    final loss over budgets therefore have different slopes, as in real training.
    """

    steps: int = 500
    seconds_per_step: float = 0.12
    evaluations: int = 8
    floor: float = 4.0
    # Nats above the floor at the end of a baseline run.
    amplitude: float = 0.7
    exponent: float = 0.35
    # Nats that the decay of the learning rate releases.
    heat: float = 0.4
    # Standard deviation over seeds that two arms with the same seed share.
    seed_noise: float = 0.012
    # Standard deviation of each run by itself.
    run_noise: float = 0.006
    # Standard deviation of one evaluation before the end.
    evaluation_noise: float = 0.003

    def final_loss(self, steps: float) -> float:
        """Without noise, after `steps` steps of a schedule of that length."""
        return self.floor + self.amplitude * (steps / self.steps) ** -self.exponent

    @property
    def slope(self) -> float:
        """Nats that the baseline gains when the logarithm of its budget grows by 1."""
        return self.amplitude * self.exponent


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planted:
    """What is true of a method, known because it was planted."""

    name: str = "baseline"
    # Charged time of a step of the baseline over that of the method: 1.05 buys 5 % more steps.
    speedup: float = 1.0
    # Nats by which every final loss is lower than the steps would give.
    lower_by: float = 0.0
    # Chance that a run diverges.
    divergence: float = 0.0


def simulate(world: World, planted: Planted, seed: int, draw: int = 0, budget: float = 1.0) -> Run:
    """One run; equal (seed, draw) share the noise of the seed, whatever the method.

    `draw` numbers the repetitions, `budget` is a multiple of the world's.
    """
    shared = np.random.default_rng([draw, seed, 0])
    name_key = zlib.crc32(planted.name.encode())
    own = np.random.default_rng([draw, seed, 1, name_key, round(1000 * budget)])
    steps = math.floor(world.steps * budget * planted.speedup)
    step_s = world.seconds_per_step / planted.speedup
    offset = (
        world.seed_noise * shared.standard_normal()
        + world.run_noise * own.standard_normal()
        - planted.lower_by
    )
    progress = np.arange(1, world.evaluations + 1) / world.evaluations
    at = np.round(progress * steps).astype(np.int64)
    rate = 0.5 * (1 + np.cos(np.pi * progress))
    # Area under the cosine so far over the whole of it.
    area = progress + np.sin(np.pi * progress) / np.pi
    loss = (
        world.floor
        + world.amplitude * (area * steps / world.steps) ** -world.exponent
        + world.heat * rate
        + offset
    )
    loss[:-1] += world.evaluation_noise * own.standard_normal(world.evaluations - 1)
    diverged_at = None
    if own.random() < planted.divergence:
        diverged_at = int(at[len(at) // 2])
        loss[len(at) // 2 :] = math.nan
    curve = Curve(at, at * step_s, loss)
    conditions = Conditions(
        scale="demo",
        budget=f"{world.steps * world.seconds_per_step * budget:g} s",
        data="0" * 64,
        evaluation_set="1" * 64,
        tokenizer="2" * 64,
        reference="simulated",
    )
    config = _config(world, planted, seed, steps, step_s, budget)
    return Run(
        folder=pathlib.Path(f"simulated/{planted.name}-s{seed}"),
        exp=planted.name,
        seed=seed,
        config_hash=f"{name_key:08x}",
        conditions=conditions,
        final_loss=math.inf if diverged_at else float(loss[-1]),
        diverged_at=diverged_at,
        validation=curve,
        training=curve,
        config=config,
        summary=_summary(config, curve, diverged_at),
    )


def _config(
    world: World, planted: Planted, seed: int, steps: int, step_s: float, budget: float
) -> dict[str, Any]:
    stage = {
        "name": "train",
        "start": 0.0,
        "end": 1.0,
        "first_step": 0,
        "steps": steps,
        "seconds_per_step": step_s,
    }
    return {
        "experiment": {
            "name": planted.name,
            "scale": "demo",
            "budget": f"{world.steps * world.seconds_per_step * budget:g}s",
            "seed": seed,
            "data": {"objective": "span_corruption"},
            "train": {"batch_size": 16},
        },
        "command": f"simulated: {planted}",
        "started": f"2026-01-01T00:00:{seed % 60:02d}",
        "git_commit": None,
        "versions": {"python": "simulated"},
        "device": {"kind": "simulated", "platform": "cpu", "count": 1, "processors": 1},
        "reference": {"name": "simulated", "ratio": 1.0},
        "data": {"digest": "0" * 64},
        "plan": {"stages": [stage], "from": {"seconds": step_s, "how": "simulated"}},
    }


def _summary(config: dict[str, Any], curve: Curve, diverged_at: int | None) -> dict[str, Any]:
    (stage,) = config["plan"]["stages"]
    if diverged_at is not None:
        return {"status": "diverged", "step": diverged_at}
    train_s = stage["steps"] * stage["seconds_per_step"]
    return {
        "exp": config["experiment"]["name"],
        "scale": "demo",
        "seed": config["experiment"]["seed"],
        "budget": config["experiment"]["budget"],
        "device": config["device"],
        "reference": "simulated",
        "ratio": 1.0,
        "planned_from": config["plan"]["from"],
        "step_time_s": None,
        "sparsity": None,
        "input_wait_share": 0.0,
        "wall_s": train_s + 5.0,
        "tokens": 2048 * stage["steps"],
        "params": dict.fromkeys(("total", "nonzero", "nonzero_without_embedding"), 10**6)
        | {"embedding": 10**5},
        "flops": {"dense": 1e12, "ideal": 1e12},
        "status": "finished",
        "steps": stage["steps"],
        "final": {"nll": float(curve.loss[-1]), "loss": float(curve.loss[-1])},
        "validation": {"digest": "1" * 64, "examples": 256, "unigram_nll": 5.64},
        "vocabulary": "2" * 64,
        "rst_s": stage["steps"] * stage["seconds_per_step"],
        "seconds": {"train": stage["steps"] * stage["seconds_per_step"], "compile": 5.0},
    }


def write_run(run: Run, workdir: pathlib.Path) -> pathlib.Path:
    """Writes a simulated run as the run folder that training leaves; returns the folder."""
    experiment = run.config["experiment"]
    name = f"demo-{experiment['budget']}-s{run.seed}-{run.config_hash}"
    folder = workdir / run.exp / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        json.dumps(run.config | {"config_hash": run.config_hash}, indent=2)
    )
    (folder / "summary.json").write_text(json.dumps(run.summary, indent=2))
    lines = [
        {"step": int(step), "split": "validation", "rst_s": float(rst), "nll": float(loss)}
        for step, rst, loss in zip(
            run.validation.step, run.validation.rst_s, run.validation.loss, strict=True
        )
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
