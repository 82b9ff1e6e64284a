"""Layer stacking: a shallow model is trained, copied onto itself, and trained on.

Gong et al. 2019; fractions and depths as in No Train No Gain (Kaddour et al. 2023, arXiv
2307.06440): a quarter, a half and all layers, growing at 12.5 % and 30 % of the budget.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from experiments.methods.api import Method, StageSpec, State, depths, require
from models.errors import UserError

if TYPE_CHECKING:
    from experiments.config import Experiment

ORDERS = ("append", "interleave")
OPTIMIZER_STATES = ("copied", "fresh", "reset")
NEW_OUTPUTS = ("copied", "zero")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stacking(Method):
    """When the model grows, and what the new layers start from.

    The paper says nothing of the optimiser's state. Its released code keeps the moments of old
    layers and gives new ones an empty state, `optimizer_state=fresh`; with a count of steps of
    their own there, with the common one here.
    """

    name: str = "stacking"
    # Depth of each stage as a share of the model's; the last is 1.
    depth_fractions: tuple[float, ...] = (0.25, 0.5, 1.0)
    # Shares of the budget at which the model grows, one fewer than there are stages.
    grow_at: tuple[float, ...] = (0.125, 0.30)
    # Where copies go: "append" (ABAB, as published) or "interleave" (AABB).
    order: str = "append"
    # Optimiser's state of new layers: "copied", "fresh" (as released), or "reset" for all layers.
    optimizer_state: str = "fresh"
    # Output projections of new layers: "copied" (as published), or "zero", which leaves the
    # function of a pre-norm model, and its loss, as it was.
    new_outputs: str = "copied"

    def check(self, experiment: "Experiment") -> None:
        for field, known in (
            ("order", ORDERS),
            ("optimizer_state", OPTIMIZER_STATES),
            ("new_outputs", NEW_OUTPUTS),
        ):
            given = getattr(self, field)
            require(given in known, f"method.{field}={given}: not one of {', '.join(known)}.")
        shown = ",".join(map(str, self.grow_at))
        require(
            len(self.grow_at) == len(self.depth_fractions) - 1,
            f"method.grow_at={shown}: {len(self.depth_fractions)} depth_fractions need "
            f"{len(self.depth_fractions) - 1} points of growth.",
        )
        require(
            all(a < b for a, b in zip((0.0, *self.grow_at), (*self.grow_at, 1.0), strict=True)),
            f"method.grow_at={shown}: points of growth are shares of the budget, above 0, below 1 "
            "and rising.",
        )
        require(
            self.depth_fractions[-1] == 1.0,
            f"method.depth_fractions ends at {self.depth_fractions[-1]}: the last stage has all "
            "layers, 1.0.",
        )
        require(bool(depths(experiment.model)), "method.name=stacking: this model has no layers.")
        require(
            experiment.pruning is None,
            "method.name=stacking with pruning: masks are chosen for one depth; use one of them.",
        )
        for field, depth in depths(experiment.model).items():
            self._check_depth(field, depth)
        if self.new_outputs == "zero":
            require(
                getattr(experiment.model, "pre_norm", True),
                "method.new_outputs=zero: leaves the function as it was only if model.pre_norm.",
            )

    def _check_depth(self, field: str, depth: int) -> None:
        before = 0.0
        for fraction in self.depth_fractions:
            layers = depth * fraction
            if layers != int(layers) or layers < 1:
                raise UserError(
                    f"method.depth_fractions: {fraction} of model.{field}={depth} is {layers:g} "
                    "layers, not a whole number of at least 1."
                )
            if before and (layers % before or layers <= before):
                raise UserError(
                    f"method.depth_fractions: {layers:g} layers (model.{field}) are no multiple of "
                    f"the {before:g} before; a stack grows by whole copies."
                )
            before = layers

    def cost_facts(self, kind: str) -> list[Any]:
        # Each depth is an ordinary model.
        return [self.order, self.optimizer_state, self.new_outputs] if kind != "train" else []

    def stages(self, experiment: "Experiment") -> tuple[StageSpec, ...]:
        stages = []
        for fraction, end in zip(self.depth_fractions, (*self.grow_at, 1.0), strict=True):
            shallow: dict[str, Any] = {
                field: int(depth * fraction) for field, depth in depths(experiment.model).items()
            }
            model = dataclasses.replace(experiment.model, **shallow)
            name = "+".join(map(str, shallow.values())) + " layers"
            stages.append(StageSpec(name, end, dataclasses.replace(experiment, model=model)))
        return tuple(stages)

    def enter_stage(
        self, before: "Experiment", after: "Experiment", state: State, new_optimizer: Any
    ) -> State:
        from experiments.methods.grow import grow

        factors = {
            after_depth // before_depth
            for before_depth, after_depth in zip(
                depths(before.model).values(), depths(after.model).values(), strict=True
            )
        }
        (factor,) = factors
        return grow(self, state, factor, new_optimizer)
