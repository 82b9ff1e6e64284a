"""What an efficient-training method may change; the loop itself knows no method.

A method is a frozen dataclass of settings that overrides what it changes and leaves the rest. It is
told its progress, the spent share of the budget, and never sees a clock. What it computes beside
the training step are compiled programs with a charge of their own.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from models.errors import UserError

if TYPE_CHECKING:  # reading configurations must stay quick, and imports no jax
    import jax

    from experiments.config import Experiment
    from experiments.data.prefetch import Supplier
    from experiments.methods.supply import Supply
    from models.api import Model

State = dict[str, Any]
Batch = Mapping[str, Any]
Sums = dict[str, tuple[Any, Any]]


class Draw(NamedTuple):
    """What a loss may depend on beside parameters and batch."""

    # Key of this microbatch, and the one that all microbatches of the update share.
    key: "jax.Array"
    update_key: "jax.Array"
    # Share of the budget spent before the update.
    progress: "jax.Array"


class StepLosses(Protocol):
    """Computes (sum, count) pairs of a batch; "loss" is what is trained on."""

    def __call__(self, params: Any, batch: Batch, draw: Draw) -> Sums: ...


@dataclasses.dataclass(frozen=True)
class Timed:
    """One way in which the training step is timed, and its weight in the charge of a step."""

    kind: str
    # Progress that the step is told while it is timed.
    progress: float
    calls_per_step: float
    # Layers that run on average, where not all do: what published seconds are looked up by.
    layers: float | None = None


@dataclasses.dataclass(frozen=True)
class StageSpec:
    """A share of the budget with one compiled program."""

    name: str
    # Share of the budget at which the stage ends; 1 for the last.
    end: float
    # What is compiled: the experiment, with the model of this stage.
    experiment: "Experiment"
    # How the training step is charged; the calls add up to 1.
    timed: tuple[Timed, ...] = (Timed("train", 0.0, 1.0),)


@dataclasses.dataclass(frozen=True)
class Side:
    """A program beside the training step, run before it at every `every_steps`-th step.

    It turns (state, batch, progress) into (state, batch): it may choose what is trained on, or
    gather statistics into the state.
    """

    kind: str
    function: Callable[[State, Batch, Any], tuple[State, Batch]]
    every_steps: int = 1
    # How often a run of it is charged: 2 where the like has been done elsewhere on its behalf.
    calls_per_run: float = 1.0
    # Declared free: measured and recorded, but not charged to the budget.
    free: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """The settings of a method; subclasses add fields and override what they change."""

    # Says in records which method it is; fixed by the subclass.
    name: str
    # Arrays (examples,), float32, that `before_run` adds to every batch.
    extra_arrays: ClassVar[tuple[str, ...]] = ()

    def check(self, experiment: "Experiment") -> None:
        """Raises UserError where the method cannot work, before anything compiles."""

    def stages(self, experiment: "Experiment") -> tuple[StageSpec, ...]:
        """Returns the stages in order; one by default."""
        return (StageSpec("train", 1.0, experiment),)

    def enter_stage(
        self, before: "Experiment", after: "Experiment", state: State, new_optimizer: Any
    ) -> State:
        """Turns the last state of one stage into the first of the next.

        `new_optimizer` makes the optimiser's first state for given parameters.
        """
        return state

    def examples_per_step(self, experiment: "Experiment") -> int:
        """Returns how many examples a step is given."""
        return experiment.train.batch_size

    def losses(self, model: "Model", experiment: "Experiment") -> StepLosses:
        """Returns the loss of the training step; evaluation never uses it."""
        return plain_losses(model)

    def init_state(self, experiment: "Experiment", batch: Batch) -> Any:
        """Returns what is kept under `state["method"]`, None for nothing; `batch` has shapes."""
        return None

    def sides(self, model: "Model", experiment: "Experiment") -> tuple[Side, ...]:
        """Returns the programs beside the training step, in the order in which they run."""
        return ()

    def cost_facts(self, kind: str) -> list[Any]:
        """Returns the settings that decide what a program of this kind costs.

        Programs that are alike in these, and in model, data and optimiser, share one measurement:
        [] says that this one is the baseline's. By default no two settings share any.
        """
        return [repr(self)]

    def mean_share_of_layers(self, experiment: "Experiment") -> float:
        """Returns the share of the layers that a step of a stage runs on average."""
        return 1.0

    def before_run(self, experiment: "Experiment", supply: "Supply") -> "Before":
        """Does what must be done before the plan is made, such as training another model."""
        return Before()


@dataclasses.dataclass(frozen=True)
class Before:
    """What happened before the first step of a run."""

    # Reference-system seconds that it took from the budget, and what they were, for the records.
    charged_s: float = 0.0
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    # (batches, total steps) → what the loop reads, for methods that add arrays to a batch.
    wrap: "Callable[[Supplier, int], Supplier] | None" = None


def plain_losses(model: "Model") -> StepLosses:
    """Returns the model's own loss."""

    def losses(params: Any, batch: Batch, draw: Draw) -> Sums:
        return model.losses(params, batch, key=draw.key)

    return losses


def require(condition: bool, message: str) -> None:
    """Raises UserError(message) unless the condition holds."""
    if not condition:
        raise UserError(message)


def depths(model: Any) -> dict[str, int]:
    """Returns field → number of layers for each stack of layers of a model's configuration."""
    names = ("num_layers", "num_encoder_layers", "num_decoder_layers")
    return {name: getattr(model, name) for name in names if hasattr(model, name)}
