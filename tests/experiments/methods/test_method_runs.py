"""Every method's whole run, tiny: it ends, and its plan says what was charged."""

import json
import pathlib

import pytest

from experiments.ntng import CHALLENGERS
from experiments.run import run_experiment
from experiments.run_folder import RunFolder

# Which programs a step of each is charged with, and how many calls of them.
CALLS = {
    "stacking": {"train": 1.0},
    "layer_dropping": {"train": pytest.approx(0.05), "train_last": pytest.approx(0.95)},
    "selective_backprop": {"train": 1.0, "forward": 1.0},
    "rho": {"train": 1.0, "forward": 1.0},
    "rho_free": {"train": 1.0, "forward": 1.0},
    "lion": {"train": 1.0},
    "sophia_g": {"train": 1.0, "hessian": 0.1},
    "sophia_h": {"train": 1.0, "hessian": 0.1},
    "muon": {"train": 1.0},
    "schedule_free": {"train": 1.0},
}


@pytest.fixture
def tiny_t5(tiny):
    def make(method, settings=(), **kwargs):
        deep = ["model.num_encoder_layers=2", "model.num_decoder_layers=2"]
        if method == "stacking":
            deep += ["method.depth_fractions=0.5,1", "method.grow_at=0.3"]
        if method.startswith("rho"):
            deep.append("method.proxy_budget=8steps")
        return tiny(f"t5_{method}", settings=[*deep, *settings], **kwargs)

    return make


def run(experiment, workdir):
    assert run_experiment(experiment, str(workdir), "here", False) == 0
    folder = RunFolder(pathlib.Path(workdir), experiment).path
    read = [json.loads((folder / f"{name}.json").read_text()) for name in ("config", "summary")]
    return folder, *read


# The others are slow, as most of their time is compiling.
_FAST = ("stacking",)


@pytest.mark.parametrize(
    "method",
    [name if name in _FAST else pytest.param(name, marks=pytest.mark.slow) for name in CHALLENGERS],
)
def test_run_ends_and_plan_says_what_is_charged(tiny_t5, tmp_path, method):
    experiment = tiny_t5(method, budget="24steps")
    _, config, summary = run(experiment, tmp_path)
    assert summary["status"] == "finished" and summary["steps"] == 24
    stages = config["plan"]["stages"]
    assert len(stages) == (2 if method == "stacking" else 1)
    for index, stage in enumerate(stages):
        calls = {kind: one["calls_per_step"] for kind, one in stage["programs"].items()}
        grow = {"grow": pytest.approx(1 / stage["steps"])} if index else {}
        assert calls == CALLS[method] | grow
        charged = sum(
            one["calls_per_step"] * one["seconds"]
            for one in stage["programs"].values()
            if not one.get("free")
        )
        assert stage["seconds_per_step"] == pytest.approx(charged)
    assert any(
        one.get("free", False) for stage in stages for one in stage["programs"].values()
    ) == (method == "rho_free")
    # Beside this, waiting for input above 1 % is charged.
    planned = sum(stage["steps"] * stage["seconds_per_step"] for stage in stages)
    assert planned * (1 - 1e-6) <= summary["rst_s"]
