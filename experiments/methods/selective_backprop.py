"""Selective backprop: examples are trained on the more often, the higher their loss.

Jiang et al. 2019 (arXiv 1910.00762) as in No Train No Gain (Kaddour et al. 2023, arXiv 2307.06440):
an example is accepted with probability CDF(loss)^β among the last 5,000 losses, and accepted ones
are pooled until they fill a batch.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from experiments.methods.api import Batch, Method, Side, State, require

if TYPE_CHECKING:
    from experiments.config import Experiment
    from models.api import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectiveBackprop(Method):
    """How strictly examples are chosen.

    For each update (1 + β) batches of candidates are scored, of which one batch is accepted on
    average, so that the plan is exact and the host never waits for the device. What is accepted
    beyond a batch stays in a pool on the device for the next updates; where the pool runs dry, the
    likeliest of the others fill the batch. In the paper the number scored is random, with the same
    mean.
    """

    name: str = "selective_backprop"
    # Exponent of the percentile: 1 accepts half of the examples, 2 a third.
    beta: float = 1.0
    # Losses that a percentile is taken among.
    history: int = 5000
    # Batches of accepted examples that the pool can hold; the oldest beyond it are dropped.
    pool_batches: int = 2
    # Declared free, as in the paper's ablation: scoring is not charged.
    free_selection: bool = False

    def check(self, experiment: "Experiment") -> None:
        require(0 < self.beta <= 16, f"method.beta={self.beta}: must be above 0 and at most 16.")
        candidates = self.examples_per_step(experiment)
        require(
            self.history >= candidates,
            f"method.history={self.history}: must be at least the {candidates} candidates of an "
            "update.",
        )
        require(
            self.pool_batches >= 1, f"method.pool_batches={self.pool_batches}: must be at least 1."
        )
        check_predicts_tokens(self, experiment)

    def examples_per_step(self, experiment: "Experiment") -> int:
        part = experiment.train.batch_size // experiment.train.microbatches
        return math.ceil((1 + self.beta) * experiment.train.batch_size / part - 1e-9) * part

    def init_state(self, experiment: "Experiment", batch: Batch) -> Any:
        from experiments.methods.select import init_selection

        return init_selection(batch, self.history, self.pool_batches * experiment.train.batch_size)

    def cost_facts(self, kind: str) -> list[Any]:
        return ["selective_backprop", self.beta, self.pool_batches] if kind == "forward" else []

    def sides(self, model: "Model", experiment: "Experiment") -> tuple[Side, ...]:
        from experiments.methods.select import example_losses, select_by_percentile

        parts = self.examples_per_step(experiment) // (
            experiment.train.batch_size // experiment.train.microbatches
        )

        def forward(state: State, batch: Batch, progress: Any) -> tuple[State, Batch]:
            losses = example_losses(model, state, batch, parts)
            kept, chosen = select_by_percentile(
                state["method"],
                batch,
                losses,
                experiment.train.batch_size,
                self.beta,
                selection_key(state),
            )
            return state | {"method": kept}, chosen

        return (Side("forward", forward, free=self.free_selection),)


def selection_key(state: State) -> Any:
    """Returns the key of a step's selection, apart from those of its update."""
    import jax

    return jax.random.fold_in(jax.random.fold_in(state["key"], 2**31 - 2), state["step"])


def check_predicts_tokens(method: Method, experiment: "Experiment") -> None:
    """Raises UserError for images, whose examples have one prediction and no masks."""
    require(
        experiment.data.objective in ("mlm", "span_corruption"),
        f"method.name={method.name}: selects among sequences; data.objective="
        f"{experiment.data.objective} does not fit.",
    )
