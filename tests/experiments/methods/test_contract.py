"""The contract for methods: ours keep it, a user's does, and broken ones are found out."""

import dataclasses
import pathlib
import sys

import pytest

from experiments import registry
from experiments.methods.api import Method, Side, StageSpec, Timed
from experiments.methods.contract import check_contract
from experiments.methods.stacking import Stacking


@pytest.fixture
def tiny_bert(corpus, in_cache):
    """A BERT experiment that compiles in a second."""

    def make(name="bert_baseline", **changes):
        base = registry.resolve(name, "demo")
        return dataclasses.replace(
            base,
            model=dataclasses.replace(
                base.model, vocab_size=612, model_dim=16, mlp_dim=32, num_heads=2
            ),
            data=dataclasses.replace(
                base.data, vocabulary_size=512, files=f"{corpus}/*.txt", inputs_length=16
            ),
            mesh=dataclasses.replace(base.mesh, data=1),
            **changes,
        )

    return make


@pytest.mark.slow
def test_my_claim_of_the_readme_is_charged_and_kept(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parent))
    registry.import_modules(["my_claim"])
    try:
        experiment = tiny_bert("bert_easy_first")
        said = check_contract(experiment, tmp_path)
        assert any("a whole run is charged" in line for line in said)
        study = registry.resolve_study("study_easy_first", "demo")
        assert {run.name for run in study.runs} == {"bert_baseline", "bert_easy_first"}
    finally:
        for names in (registry._EXPERIMENTS, registry._STUDIES):
            for name in [n for n in names if "easy_first" in n]:
                del names[name]
        sys.modules.pop("my_claim", None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnDraws(Method):
    """Draws that are not a function of the run's key."""

    name: str = "own_draws"

    def losses(self, model, experiment):
        import jax
        import numpy as np

        def losses(params, batch, draw):
            noise = jax.pure_callback(
                lambda: np.float32(np.random.default_rng().normal()),
                jax.ShapeDtypeStruct((), np.float32),
            )
            total, count = model.losses(params, batch)["loss"]
            sums = model.losses(params, batch)
            return sums | {"loss": (total * (1 + noise), count)}

        return losses


@dataclasses.dataclass(frozen=True, kw_only=True)
class HalfCharged(Method):
    """A training step of which half is not charged."""

    name: str = "half_charged"

    def stages(self, experiment):
        return (StageSpec("train", 1.0, experiment, (Timed("train", 0.0, 0.5),)),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Twice(Method):
    """Two programs of one kind, which would share a measurement."""

    name: str = "twice"

    def sides(self, model, experiment):
        side = Side("forward", lambda state, batch, progress: (state, batch))
        return (side, side)


@pytest.mark.parametrize(
    ("method", "part"),
    [
        (OwnDraws(), "equal runs ended differently"),
        (HalfCharged(), "add up to 0.5"),
        (Twice(), "cannot be told apart"),
    ],
)
def test_broken_methods_are_found_out(tiny_bert, method, part):
    with pytest.raises(AssertionError, match=part):
        check_contract(tiny_bert(method=method))


def test_stages_that_do_not_reach_the_end_are_found_out(tiny_bert):
    class Short(Stacking):
        def stages(self, experiment):
            return super().stages(experiment)[:2]

    with pytest.raises(AssertionError, match="not rising to 1"):
        check_contract(tiny_bert(method=Short()))
