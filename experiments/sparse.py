"""Sparse T5 and ViT: pruned while they train from scratch, or from a dense run on.

As in the study of Frantar et al. 2024 (arXiv 2309.08520): gradual magnitude pruning, cubic from
25 % to 75 % of the budget, uniform over tensors.
"""

import dataclasses

from experiments.config import Experiment
from experiments.init import InitConfig
from experiments.registry import experiment
from experiments.t5 import dense_t5
from experiments.vit import vit_baseline
from sparsity.config import PruningConfig, parse_pattern

# For people: the network, and the time at paper scale.
_TITLE = {"t5": "T5 v1.1 on span corruption", "vit": "ViT on images"}
_TIME = {"t5": "250,000 steps", "vit": "90 epochs"}
# Experiments by name: the family and what is pruned, and their measured scores at demo scale.
_FROM_SCRATCH = {
    "sparse_t5_50": ("t5", "50 %", "demo validation loss about 4.7"),
    "sparse_t5_75": ("t5", "75 %", "demo validation loss about 4.8"),
    "sparse_t5_875": ("t5", "87.5 %", "demo validation loss about 4.8"),
    "sparse_t5_2to4": ("t5", "2:4", "the loss is to be compared with that of sparse_t5_50"),
    "sparse_t5_4to8": ("t5", "4:8", "the loss is to be compared with that of sparse_t5_50"),
    "sparse_t5_1to4": ("t5", "1:4", "the loss is to be compared with that of sparse_t5_75"),
    "sparse_t5_2to8": ("t5", "2:8", "the loss is to be compared with that of sparse_t5_75"),
    "sparse_vit_50": ("vit", "50 %", "the accuracy is to be compared with that of dense_vit"),
    "sparse_vit_75": ("vit", "75 %", "the accuracy is to be compared with that of dense_vit"),
    "sparse_vit_875": ("vit", "87.5 %", "the accuracy is to be compared with that of dense_vit"),
}
# Half of the budget of the dense run.
_HALF_BUDGET = {
    ("t5", "demo"): "30s",
    ("t5", "paper"): "125000steps",
    ("vit", "demo"): "20s",
    ("vit", "paper"): "56295steps",
}
_FROM_DENSE = {
    "sparsify_t5_50": ("t5", "50 %"),
    "sparsify_t5_75": ("t5", "75 %"),
    "sparsify_vit_50": ("vit", "50 %"),
    "sparsify_vit_75": ("vit", "75 %"),
}


@experiment
def dense_vit(scale: str) -> Experiment:
    """ViT on images, dense: what every sparse run is compared with.

    The settings of vit_baseline; those of the study, on a set of images that is not public, are not
    published.

    Command: python -m experiments.launch --exp=dense_vit
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 2 minutes; paper 90 epochs.
    Score: demo validation accuracy about 0.92.
    """
    return dataclasses.replace(vit_baseline(scale), name="dense_vit")


def pruning_of_study(scale: str, pattern: str) -> PruningConfig:
    """Pruning as in the study, to an N:M pattern such as "2:4" or to zeros such as "75 %"."""
    if pattern.endswith("%"):
        sparsity, kind = float(pattern.removesuffix("%")) / 100, "unstructured"
    else:
        kept, group = parse_pattern(pattern).shape
        sparsity, kind = 1 - kept / group, pattern
    every = 100 if scale == "paper" else 20
    return PruningConfig(
        rule="magnitude", sparsity=sparsity, pattern=kind, update_every_steps=every
    )


def dense(family: str, scale: str) -> Experiment:
    """What the sparse runs of a family, "t5" or "vit", are compared with."""
    return dense_t5(scale) if family == "t5" else dense_vit(scale)


def _register_from_scratch(name: str, family: str, pattern: str, score: str) -> None:
    def make(scale: str) -> Experiment:
        pruning = pruning_of_study(scale, pattern)
        return dataclasses.replace(dense(family, scale), name=name, pruning=pruning)

    where = "" if pattern.endswith("%") else " in groups along the contraction axis"
    make.__name__ = name
    make.__doc__ = f"""{_TITLE[family]}, {pattern} sparse by magnitude{where}.

    Command: python -m experiments.launch --exp={name}
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 2 minutes; paper {_TIME[family]}.
    Score: {score}; the paper's runs are in its law, not in a table.
    """
    experiment(make)


def _register_from_dense(name: str, family: str, pattern: str) -> None:
    def make(scale: str) -> Experiment:
        base = dense(family, scale)
        return dataclasses.replace(
            base,
            name=name,
            budget=_HALF_BUDGET[family, scale],
            init=InitConfig(run=base.name),
            pruning=pruning_of_study(scale, pattern),
        )

    make.__name__ = name
    make.__doc__ = f"""{_TITLE[family]}, a dense run made {pattern} sparse in half its budget more.

    It starts from the finished run of dense_{family} in the working folder, or from any other by
    --set init.run=FOLDER; weights of transformers by --set init.run=none and
    --set init.hugging_face=FOLDER.

    Command: python -m experiments.launch --exp={name}
    Hardware: demo any CPU with 2 cores; paper one accelerator with 40 GB or more.
    Time: demo 1 minute, after the dense run; paper half of {_TIME[family]}.
    Score: demo a little above that of dense_{family}, which it starts from.
    """
    experiment(make)


for _name, _facts in _FROM_SCRATCH.items():
    _register_from_scratch(_name, *_facts)
for _name, (_family, _pattern) in _FROM_DENSE.items():
    _register_from_dense(_name, _family, _pattern)
