"""Progressive layer dropping: each update trains a random part of the layers.

Zhang and He 2020 (arXiv 2010.13369) with the schedule of No Train No Gain (Kaddour et al. 2023,
arXiv 2307.06440): θ(t) = ā + (1 − ā) exp(−γ t) with t the spent share of the budget, and layer
l = 1 … L of a stack is dropped with probability (l / L)(1 − θ).
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from experiments.methods.api import (
    Batch,
    Draw,
    Method,
    StageSpec,
    StepLosses,
    Sums,
    Timed,
    depths,
    require,
)

if TYPE_CHECKING:
    import jax

    from experiments.config import Experiment
    from models.api import Model

SCOPES = ("microbatch", "update")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerDropping(Method):
    """How many layers are dropped, and how often they are drawn.

    As in the released code a dropped layer is the identity and nothing is rescaled; there, too,
    BERT draws anew for each microbatch and T5 for each update. Other than there, an update may
    drop all layers.
    """

    name: str = "layer_dropping"
    # ā: what the keep probability of the last layer falls to.
    keep_floor: float = 0.5
    # γ: how fast it falls; 100 falls within the first 3 % of the budget.
    gamma: float = 100.0
    # What shares one draw: a "microbatch", or all of an "update".
    draw_per: str = "microbatch"
    # Whether the branch of a layer that runs is divided by its keep probability.
    rescale: bool = False

    def check(self, experiment: "Experiment") -> None:
        require(
            0 < self.keep_floor <= 1,
            f"method.keep_floor={self.keep_floor}: a probability above 0 and at most 1.",
        )
        require(self.gamma > 0, f"method.gamma={self.gamma}: must be above 0.")
        require(
            self.draw_per in SCOPES,
            f"method.draw_per={self.draw_per}: not one of {', '.join(SCOPES)}.",
        )
        require(
            getattr(experiment.model, "pre_norm", True) and bool(depths(experiment.model)),
            "method.name=layer_dropping: needs a pre-norm model, in which a layer without its "
            "branches is the identity.",
        )

    def stages(self, experiment: "Experiment") -> tuple[StageSpec, ...]:
        """One stage, charged its mean over the budget.

        The expected number of layers is linear in exp(−γ t), so that a step costs on average
        w · (first step) + (1 − w) · (last step), with both timed.
        """
        last = math.exp(-self.gamma)
        mean = (1 - last) / self.gamma
        weight = (mean - last) / (1 - last)
        depth = min(depths(experiment.model).values())
        running = depth - (1 - self.keep_floor) * (depth + 1) / 2
        timed = (Timed("train", 0.0, weight), Timed("train_last", 1.0, 1 - weight, running))
        return (StageSpec("train", 1.0, experiment, timed),)

    def cost_facts(self, kind: str) -> list[Any]:
        return ["layer_dropping", self.keep_floor, min(self.gamma, 20.0), self.draw_per]

    def mean_share_of_layers(self, experiment: "Experiment") -> float:
        mean = (1 - math.exp(-self.gamma)) / self.gamma
        dropped = (1 - self.keep_floor) * (1 - mean)
        counts = depths(experiment.model).values()
        return 1 - dropped * sum((count + 1) / 2 for count in counts) / sum(counts)

    def losses(self, model: "Model", experiment: "Experiment") -> StepLosses:
        stacks = tuple(depths(experiment.model).values())

        def losses(params: Any, batch: Batch, draw: Draw) -> Sums:
            import jax

            key = draw.key if self.draw_per == "microbatch" else draw.update_key
            keep = self.draw_keep(stacks, jax.random.fold_in(key, 1), draw.progress)
            return model.losses(params, batch, key=draw.key, keep=keep)

        return losses

    def keep_probabilities(self, stacks: tuple[int, ...], progress: "jax.Array") -> "jax.Array":
        """Returns the probability (L,) that each layer runs, stack after stack."""
        import jax.numpy as jnp

        theta = self.keep_floor + (1 - self.keep_floor) * jnp.exp(-self.gamma * progress)
        depth = jnp.concatenate([jnp.arange(1, count + 1) / count for count in stacks])
        return 1 - depth * (1 - theta)

    def draw_keep(
        self, stacks: tuple[int, ...], key: "jax.Array", progress: "jax.Array"
    ) -> "jax.Array":
        """Returns (L,): 0 where a layer is dropped, else 1, or 1 / its probability."""
        import jax
        import jax.numpy as jnp

        probability = self.keep_probabilities(stacks, progress)
        runs = jax.random.uniform(key, probability.shape) < probability
        if not self.rescale:
            return runs.astype(jnp.int32)
        return jnp.where(runs, 1 / probability, 0)
