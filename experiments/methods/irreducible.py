"""Irreducible losses: a proxy's loss on every window that a target run will see."""

import json
import os
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.checkpoint import Checkpoints
from experiments.config import Experiment
from experiments.data.batches import Batch, Batches
from experiments.data.prefetch import Supplier
from experiments.display import Display
from experiments.methods.api import Before
from experiments.methods.rho import IRREDUCIBLE, RhoLoss
from experiments.methods.select import example_losses
from experiments.methods.supply import Supply
from experiments.program import compile_program
from models.errors import UserError


def before_run(cfg: RhoLoss, experiment: Experiment, supply: Supply) -> Before:
    """Gets the proxy trained, and says what it has cost.

    Raises UserError for a proxy of other data or another model.
    """
    proxy = cfg.proxy_of(experiment)
    folder = pathlib.Path(cfg.proxy_run) if cfg.proxy_run else supply.finished_run(proxy)
    summary = json.loads((folder / "summary.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    if config["data"]["digest"] != supply.prepared.digest:
        raise UserError(
            f"{folder}: a proxy for other data (digest {config['data']['digest'][:8]}, this run "
            f"has {supply.prepared.digest[:8]})."
        )
    charged = cfg.proxy_cost == "charged"
    facts = {
        "run": str(folder),
        "rst_s": summary["rst_s"],
        "nll": summary["final"]["nll"],
        "free": not charged,
    }

    def wrap(batches: Supplier, steps: int) -> Supplier:
        losses = IrreducibleLosses(folder, proxy, supply)
        seen = np.zeros(len(losses.table), bool)
        for step in range(steps):
            seen[batches.windows(experiment.seed, step)] = True
        losses.add(np.flatnonzero(seen))
        return WithIrreducibleLosses(batches, losses.table)

    return Before(summary["rst_s"] if charged else 0.0, {"proxy": facts}, wrap)


class IrreducibleLosses:
    """`<proxy run>/irreducible_losses.npy`: the loss of each window, NaN where not yet asked for.

    Masks are a function of the window, so that one table serves all seeds and budgets.
    """

    def __init__(self, folder: pathlib.Path, proxy: Experiment, supply: Supply):
        self._path = folder / "irreducible_losses.npy"
        self._checkpoints = folder / "checkpoints"
        self._proxy = proxy
        self._display: Display = supply.display
        self._batches = Batches(supply.prepared, proxy.data, "train", proxy.train.batch_size)
        total = len(supply.prepared.array("train", "tokens"))
        self.table = (
            np.load(self._path) if self._path.exists() else np.full(total, np.nan, np.float32)
        )

    def add(self, windows: np.ndarray) -> None:
        """Computes the losses of those windows that are still missing, and keeps them."""
        missing = windows[np.isnan(self.table[windows])]
        if not len(missing):
            return
        program = compile_program(self._proxy)
        with Checkpoints(self._checkpoints, self._proxy.train.keep_checkpoints) as checkpoints:
            restored = checkpoints.restore_latest(program.state_shapes, self._display.tell)
        if restored is None:
            raise UserError(f"{self._checkpoints}: the proxy's checkpoint is missing.")
        state, size = restored[0], self._batches.batch_size

        @jax.jit
        def score(params: Any, batch: Batch) -> jax.Array:
            return example_losses(program.model, {"params": params}, batch, 1)

        self._display.start("scoring windows by the proxy", len(missing))
        pending: list[jax.Array] = []
        for first in range(0, len(missing), size):
            # The last batch is filled up, so that one program serves all.
            chosen = np.resize(missing[first : first + size], size)
            pending.append(score(state["params"], self._batches.examples_of(chosen)))
            self._display.update(first, len(missing), f"{first:,} windows")
        losses = np.concatenate(jax.device_get(pending))[: len(missing)]
        self._display.stop()
        self.table[missing] = losses
        temporary = self._path.with_suffix(f".{os.getpid()}.npy")
        np.save(temporary, self.table)
        temporary.replace(self._path)


class WithIrreducibleLosses:
    """Batches with the proxy's loss of each example beside it."""

    def __init__(self, batches: Supplier, table: np.ndarray):
        self.batch_size = batches.batch_size
        self._batches = batches
        self._table = table

    def windows(self, seed: int, i: int) -> np.ndarray:
        return self._batches.windows(seed, i)

    def batch(self, seed: int, i: int, rows: slice = slice(None)) -> Batch:
        losses = self._table[self.windows(seed, i)[rows]]
        return self._batches.batch(seed, i, rows) | {IRREDUCIBLE: losses}
