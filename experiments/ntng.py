"""The methods of "No Train No Gain", and later ones, on BERT and T5 under one clock.

Kaddour et al. 2023 (arXiv 2307.06440). A challenger is the baseline of its model with one thing
changed; everything that is not named here is the baseline's. Paper settings are the published ones
where there are any. Each demo learning rate, the baselines' too, is the best of the five that the
`tune_*` studies of experiments/ntng_studies.py try.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from experiments.bert import bert_baseline
from experiments.config import Experiment, SophiaConfig
from experiments.methods.api import Method
from experiments.methods.layer_dropping import LayerDropping
from experiments.methods.rho import RhoLoss
from experiments.methods.selective_backprop import SelectiveBackprop
from experiments.methods.stacking import Stacking
from experiments.registry import experiment
from experiments.t5 import t5_baseline

BASELINES: dict[str, Callable[[str], Experiment]] = {"bert": bert_baseline, "t5": t5_baseline}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Challenger:
    """What differs from the baseline, by family ("bert", "t5") where the two differ."""

    # One line, with {model} for the family's name.
    summary: str
    method: dict[str, Method] | None = None
    # Fields of the optimiser, the same at both scales.
    optimizer: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Fields of the optimiser at paper scale, and at demo scale.
    paper: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    demo: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    # Whether a part of the training data is held out for a proxy.
    holds_out: bool = False


def _both(method: Method) -> dict[str, Method]:
    return {"bert": method, "t5": method}


_SOPHIA: dict[str, Any] = {"beta1": 0.965, "beta2": 0.99, "sophia": SophiaConfig()}
# Published for both: half of BERT's batch, all of T5's. gamma is ρ; the released code multiplies it
# by the tokens of a batch where the paper of Sophia has the number of predictions, as here.
_SOPHIA_PAPER = {
    "bert": {
        "peak_learning_rate": 4e-4,
        "weight_decay": 0.015,
        "sophia": SophiaConfig(hessian_examples=768, gamma=0.01),
    },
    "t5": {"peak_learning_rate": 1e-3, "sophia": SophiaConfig(gamma=0.01)},
}
_SOPHIA_DEMO = {"peak_learning_rate": 1e-3}

CHALLENGERS: dict[str, Challenger] = {
    "stacking": Challenger(
        summary="{model} grown by copying its layers at 12.5 % and 30 % of the budget.",
        method=_both(Stacking()),
        demo={"bert": {"peak_learning_rate": 1.1e-2}},
    ),
    "layer_dropping": Challenger(
        summary="{model} with progressive layer dropping.",
        method={"bert": LayerDropping(), "t5": LayerDropping(gamma=20.0, draw_per="update")},
        paper={"t5": {"peak_learning_rate": 1e-2}},
    ),
    "selective_backprop": Challenger(
        summary="{model} trained on examples with high losses, by selective backprop.",
        method=_both(SelectiveBackprop()),
    ),
    "rho": Challenger(
        summary="{model} trained on examples with high reducible losses (RHO), proxy free.",
        method=_both(RhoLoss()),
        holds_out=True,
    ),
    "rho_free": Challenger(
        summary="{model} with RHO loss, mega-batches of ten and selection free: the ablation.",
        method=_both(RhoLoss(mega_batches=10, free_selection=True)),
        holds_out=True,
    ),
    "lion": Challenger(
        summary="{model} with the optimiser Lion.",
        optimizer={"name": "lion", "beta1": 0.9, "beta2": 0.99},
        paper={
            "bert": {"peak_learning_rate": 7e-4, "weight_decay": 0.1},
            "t5": {"peak_learning_rate": 7.5e-4},
        },
        demo={"bert": {"peak_learning_rate": 1.75e-3}, "t5": {"peak_learning_rate": 1.75e-3}},
    ),
    "sophia_g": Challenger(
        summary="{model} with Sophia-G: curvature by Gauss-Newton-Bartlett.",
        optimizer={"name": "sophia_g"} | _SOPHIA,
        paper=_SOPHIA_PAPER,
        demo={"bert": _SOPHIA_DEMO, "t5": _SOPHIA_DEMO},
    ),
    "sophia_h": Challenger(
        summary="{model} with Sophia-H: curvature by Hutchinson's estimate.",
        optimizer={"name": "sophia_h"} | _SOPHIA,
        paper=_SOPHIA_PAPER,
        demo={"bert": _SOPHIA_DEMO, "t5": _SOPHIA_DEMO},
    ),
    "muon": Challenger(
        summary="{model} with Muon for the matrices of its layers, AdamW for the rest.",
        optimizer={"name": "muon", "scale_by_rms": False},
        paper={"t5": {"peak_learning_rate": 2e-3}},
        demo={"bert": {"peak_learning_rate": 1.25e-2}, "t5": {"peak_learning_rate": 1e-2}},
    ),
    "schedule_free": Challenger(
        summary="{model} with schedule-free AdamW: a constant learning rate and an average.",
        optimizer={
            "name": "schedule_free",
            "schedule": "constant",
            "warmup_fraction": 0.05,
            "initial_learning_rate_ratio": 0.0,
            "scale_by_rms": False,
        },
        paper={"bert": {"peak_learning_rate": 2.5e-3}, "t5": {"peak_learning_rate": 2.5e-3}},
        demo={"bert": {"peak_learning_rate": 1.25e-2}, "t5": {"peak_learning_rate": 4.5e-3}},
    ),
}

# The methods of the paper and those since; the ablation with free selection is not of them.
STUDIED = tuple(name for name in CHALLENGERS if name != "rho_free")


def challenge(family: str, name: str, scale: str) -> Experiment:
    """Returns a challenger of a family at a scale."""
    base, it = BASELINES[family](scale), CHALLENGERS[name]
    settings = it.optimizer | (it.demo if scale == "demo" else it.paper).get(family, {})
    data = base.data
    if it.holds_out:
        data = dataclasses.replace(data, holdout_every=5, train_part="target", masks_by_window=True)
    method = it.method[family] if it.method else None
    if isinstance(method, RhoLoss) and scale == "demo":
        method = dataclasses.replace(method, proxy_budget="12s")
    return dataclasses.replace(
        base,
        name=f"{family}_{name}",
        optimizer=dataclasses.replace(base.optimizer, **settings),
        data=data,
        method=method,
        # The ablation takes over the learning rate of the method.
        tuning_trials=None if name == "rho_free" else base.tuning_trials,
    )


def _register(family: str, name: str) -> None:
    def make(scale: str) -> Experiment:
        return challenge(family, name, scale)

    model = {"bert": "BERT", "t5": "T5"}[family]
    make.__name__ = f"{family}_{name}"
    make.__doc__ = f"""{CHALLENGERS[name].summary.format(model=model)}

    Settings: experiments/ntng.py, on top of {family}_baseline.

    Command: python -m experiments.launch --exp={family}_{name}
    Hardware: demo any CPU with 2 cores; paper one accelerator with 24 GB or more (T5: 80 GB).
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: beside its baseline's, by study_ntng_{family}; the paper gives no losses.
    """
    experiment(make)


for _family in BASELINES:
    for _name in CHALLENGERS:
        _register(_family, _name)
