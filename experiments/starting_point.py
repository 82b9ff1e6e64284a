"""Starts a run from trained weights: whose they are, what they have cost, and that they fit."""

import dataclasses
import pathlib
from typing import Any

import jax

from experiments.config import Experiment
from experiments.costs import total_cost
from experiments.init import InitConfig
from experiments.program import Program
from experiments.step import State
from experiments.trained import Flat, TrainedRun, find_run, open_run, parameters_digest
from models.classify import HEAD
from models.config import ModelConfig
from models.errors import UserError
from models.hugging_face.config import check_same
from models.hugging_face.load import load
from sparsity.plan import named_leaves
from sparsity.prune import apply_masks, keep_zeros


@dataclasses.dataclass(frozen=True)
class StartingPoint:
    """Trained parameters on the host, and the facts of them for config.json and summary.json."""

    params: Flat
    # "run" or "hugging_face" → folder; "digest" of the parameters; "cost" of all training that led
    # to them, None where that is not known.
    facts: dict[str, Any]

    def state(self, program: Program, seed: int) -> State:
        """The state before the first step: these parameters, everything else fresh.

        A head for a task, which no pre-trained network has, is drawn by the seed.
        """
        state, shapes = program.init_state(seed), program.state_shapes
        leaves, structure = jax.tree.flatten(state["params"])
        paths = [path for path, _ in named_leaves(state["params"])]
        params = jax.tree.unflatten(
            structure,
            [
                jax.device_put(self.params[path].astype(leaf.dtype), leaf.sharding)
                if path in self.params
                else leaf
                for path, leaf in zip(paths, leaves, strict=True)
            ],
        )
        shardings = jax.tree.map(lambda leaf: leaf.sharding, (shapes["params"], shapes["opt"]))
        init = program.experiment.init
        keeps_zeros = init is not None and init.keep_zeros

        def begin(params: Any) -> tuple[Any, Any]:
            opt = program.optimizer.init(params)
            if keeps_zeros:
                opt = keep_zeros(params, opt)
            return apply_masks(params, opt), opt

        params, opt = jax.jit(begin, out_shardings=shardings)(params)
        return state | {"params": params, "opt": opt}

    def check_fits(self, program: Program) -> None:
        """Raises UserError for a parameter that is missing, unknown or of another shape."""
        kind = "run" if "run" in self.facts else "hugging_face"
        source = f"init.{kind}={self.facts[kind]}"
        shapes = {
            path: tuple(leaf.shape) for path, leaf in named_leaves(program.state_shapes["params"])
        }
        for path, shape in shapes.items():
            if path not in self.params:
                if path.startswith(f"{HEAD}/"):
                    continue
                raise UserError(f"{source}: has no parameter {path}, which this model needs.")
            if self.params[path].shape != shape:
                raise UserError(
                    f"{source}: {path} has shape {self.params[path].shape}, this model needs "
                    f"{shape}."
                )
        if extra := sorted(set(self.params) - set(shapes)):
            raise UserError(f"{source}: parameter {extra[0]} is no part of this model.")


def find_starting_point(
    experiment: Experiment, workdir: pathlib.Path, recorded: dict[str, Any] | None
) -> StartingPoint | None:
    """Reads what an experiment starts from; None where it draws its parameters by its seed.

    `recorded` are the facts of a run that has begun: it starts from the same weights or not at all.

    Raises:
      UserError: the source is missing, unfinished or damaged, of another architecture, or no longer
        what it was.
    """
    init = experiment.init
    if init is None:
        return None
    if init.run is not None:
        if recorded is None:
            run = find_run(init.run, workdir, experiment.scale, experiment.seed)
        else:
            run = open_run(pathlib.Path(recorded["run"]))
        _check_architecture(run, experiment.model)
        params = run.params()
        facts = {
            "run": str(run.folder),
            "data": run.summary["data"],
            "cost": total_cost(run.summary),
        }
    else:
        params = _from_hugging_face(init, experiment.model)
        facts = {"hugging_face": init.hugging_face, "cost": None}
    facts["digest"] = parameters_digest(params)
    if recorded is not None and recorded["digest"] != facts["digest"]:
        raise UserError(
            f"{recorded.get('run') or recorded.get('hugging_face')}: not the weights that this run "
            "began from. Give --force to run anew."
        )
    return StartingPoint(params, facts)


def _check_architecture(run: TrainedRun, model: ModelConfig) -> None:
    """Raises UserError where the run's model computes something else with the same shapes."""
    other = run.model()
    if type(other) is type(model):
        # Sizes are found, and named by parameter, when the shapes are compared.
        stored = dataclasses.asdict(other)
        sizes = [name for name, value in stored.items() if type(value) is int]
        other = dataclasses.replace(other, **{name: getattr(model, name) for name in sizes})
    try:
        check_same(model, other)
    except UserError as error:
        text = str(error).replace("the file", "that run")
        raise UserError(f"init.run={run.folder}: model: {text}") from None


def _from_hugging_face(init: InitConfig, model: ModelConfig) -> Flat:
    assert init.hugging_face is not None
    try:
        _, params = load(pathlib.Path(init.hugging_face), model)
    except UserError as error:
        raise UserError(f"init.hugging_face={init.hugging_face}: {error}") from None
    return dict(named_leaves(params))
