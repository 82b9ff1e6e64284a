"""RHO loss: of a mega-batch, the examples are trained on whose loss can be reduced most.

Mindermann et al. 2022 (arXiv 2206.07137) as in No Train No Gain (Kaddour et al. 2023, arXiv
2307.06440): score = loss − irreducible loss, the latter by a proxy, a model of the same form that
was trained on held-out data; the batch is the top of a mega-batch.
"""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.methods.api import Batch, Before, Method, Side, State, require
from experiments.methods.selective_backprop import check_predicts_tokens

if TYPE_CHECKING:
    from experiments.config import Experiment
    from experiments.methods.supply import Supply
    from models.api import Model

COSTS = ("free", "charged")
# The array of a batch that holds the proxy's losses.
IRREDUCIBLE = "irreducible_loss"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RhoLoss(Method):
    """Size of a mega-batch, and where irreducible losses come from.

    The proxy trains on the windows that `data.holdout_every` holds out, which are neither trained
    nor validated on by the target. A window has the same masks in both runs
    (`data.masks_by_window`). In released code the masks differ and the proxy has seen the target's
    validation split.
    """

    name: str = "rho"
    extra_arrays: ClassVar[tuple[str, ...]] = (IRREDUCIBLE,)
    # Batches in a mega-batch: 2 (3,072) in the main comparison, 10 (15,360) with free selection.
    mega_batches: int = 2
    # Folder of a finished proxy run; empty: one is trained first, in the same working folder.
    proxy_run: str = ""
    # Budget of the proxy that is trained first.
    proxy_budget: str = "6h"
    # Whether the proxy's training and scoring are "charged" to the budget or declared "free", as
    # in the paper.
    proxy_cost: str = "free"
    # Declared free, as in the paper's ablation: scoring by the target itself is not charged.
    free_selection: bool = False

    def check(self, experiment: "Experiment") -> None:
        from experiments.budget import parse_budget

        require(
            self.mega_batches >= 2,
            f"method.mega_batches={self.mega_batches}: must be at least 2, or nothing is selected.",
        )
        require(
            self.proxy_cost in COSTS,
            f"method.proxy_cost={self.proxy_cost}: not one of {', '.join(COSTS)}.",
        )
        parse_budget(self.proxy_budget)
        check_predicts_tokens(self, experiment)
        data = experiment.data
        require(
            data.train_part == "target" and bool(data.masks_by_window),
            "method.name=rho: the proxy needs data of its own and the same masks; set "
            "data.holdout_every=5, data.train_part=target and data.masks_by_window=true.",
        )
        if self.proxy_run:
            self._check_proxy_run(experiment)

    def _check_proxy_run(self, experiment: "Experiment") -> None:
        from experiments.run_folder import read_json

        config = read_json(pathlib.Path(self.proxy_run) / "config.json")
        summary = read_json(pathlib.Path(self.proxy_run) / "summary.json")
        require(
            bool(config and summary and summary["status"] == "finished"),
            f"method.proxy_run={self.proxy_run}: not the folder of a finished run.",
        )
        assert config is not None
        wanted = as_json(self.proxy_of(experiment).data)
        given = {name: config["experiment"]["data"].get(name) for name in wanted}
        different = [name for name in wanted if wanted[name] != given[name]]
        require(
            config["experiment"]["model"] == as_json(experiment.model),
            f"method.proxy_run={self.proxy_run}: a proxy of another model than this one.",
        )
        require(
            not different,
            f"method.proxy_run={self.proxy_run}: a proxy for other data; "
            + ", ".join(f"data.{n} is {given[n]}, must be {wanted[n]}" for n in different)
            + ".",
        )

    def proxy_of(self, experiment: "Experiment") -> "Experiment":
        """Returns the proxy of an experiment: the same model, plainly trained on held-out data."""
        return dataclasses.replace(
            experiment,
            name=f"{experiment.name}_proxy",
            budget=self.proxy_budget,
            # One proxy serves all seeds of the target.
            seed=0,
            method=None,
            pruning=None,
            data=dataclasses.replace(experiment.data, train_part="held_out"),
        )

    def examples_per_step(self, experiment: "Experiment") -> int:
        return self.mega_batches * experiment.train.batch_size

    def cost_facts(self, kind: str) -> list[Any]:
        return ["rho", self.mega_batches] if kind == "forward" else []

    def sides(self, model: "Model", experiment: "Experiment") -> tuple[Side, ...]:
        from experiments.methods.select import example_losses, select_highest

        parts = self.mega_batches * experiment.train.microbatches

        def forward(state: State, batch: Batch, progress: Any) -> tuple[State, Batch]:
            plain = {name: leaf for name, leaf in batch.items() if name != IRREDUCIBLE}
            scores = example_losses(model, state, plain, parts) - batch[IRREDUCIBLE]
            return state, select_highest(plain, scores, experiment.train.batch_size)

        # The proxy, of the same size, has scored each candidate once as well.
        calls = 2.0 if self.proxy_cost == "charged" else 1.0
        return (Side("forward", forward, calls_per_run=calls, free=self.free_selection),)

    def before_run(self, experiment: "Experiment", supply: "Supply") -> Before:
        from experiments.methods.irreducible import before_run

        return before_run(self, experiment, supply)


def as_json(config: Any) -> dict[str, Any]:
    """Returns a configuration of plain values as JSON gives it back."""
    return dataclasses.asdict(config)
