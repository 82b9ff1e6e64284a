"""Crammed BERT with fast feedforward layers, and the dense layers that they must beat.

The layers of UltraFastBERT (Belcak and Wattenhofer 2023, arXiv 2311.10770) in `crammed_bert`, and
three baselines that the paper has not: a dense layer that takes the same time, dense layers with as
many neurons as a fast one uses, and no feedforward layer at all.
"""

import dataclasses

from experiments.bert import bert_baseline, crammed_bert
from experiments.config import Experiment
from experiments.registry import experiment, study
from experiments.study import Study
from fff.config import FFFConfig, hard_trees
from fff.equal_time import equal_time_width
from models.config import BertConfig

# Trees x index of the last level: the rows of the paper's table.
TREES = (
    *("3072x0", "1536x1", "512x2", "256x3", "128x4", "64x5"),
    *("32x6", "16x7", "8x8", "4x9", "2x10", "1x11"),
)
# Dense widths: the paper's two, and the numbers of neurons that the smaller trees use.
WIDTHS = (3072, 4095, *(hard_trees(name).used_neurons for name in TREES[4:]))

_DEMO_BUDGET = "40s"
_STUDY_SEEDS = 3
# The demo's layers are a twelfth as wide, and so are its feedforward layers: 4 x 64 for 4 x 768.
_STUDY_TREES = {"demo": ("1x7", "8x4"), "paper": ("1x11", "16x7", "128x4")}
_STUDY_WIDTHS = {"demo": (256,), "paper": (3072, 4095)}

_FACTS = """Settings: those of crammed_bert.

    Command: python -m experiments.launch --exp={name}
    Hardware: demo any CPU with 2 cores; paper one accelerator with 24 GB or more.
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: beside its baselines', by study_fff_bert; the paper gives none for pre-training.
    """


def with_trees(base: Experiment, trees: str) -> Experiment:
    """`base` with `trees`, such as 1x11, in every layer."""
    return dataclasses.replace(base, name=f"fff_bert_{trees}", fff=hard_trees(trees))


def with_width(base: Experiment, width: int) -> Experiment:
    """`base` with dense feedforward layers of this width."""
    model = dataclasses.replace(base.model, mlp_dim=width)
    return dataclasses.replace(base, name=f"crammed_bert_{width}", model=model)


def with_equal_time(base: Experiment, trees: str) -> Experiment:
    """`base` with the dense layer that takes, forward, the time of `trees` on this device."""
    tokens = base.train.batch_size // base.train.microbatches * base.data.inputs_length
    width = equal_time_width(hard_trees(trees), base.model.model_dim, tokens)
    return dataclasses.replace(with_width(base, width), name="crammed_bert_equal_time")


def without_feedforward(base: Experiment) -> Experiment:
    """`base` with layers that are attention alone."""
    return dataclasses.replace(base, name="crammed_bert_no_ffn", fff=FFFConfig(form="none"))


@experiment
def crammed_bert_equal_time(scale: str) -> Experiment:
    """Crammed BERT with a dense feedforward layer of the time of 1x11, measured on this device.

    The width is measured when it is first asked for, and kept in the cache. Machines that have
    measured apart have different widths; --set=model.mlp_dim=50 fixes one.

    Settings: those of crammed_bert.

    Command: python -m experiments.launch --exp=crammed_bert_equal_time
    Hardware: demo any CPU with 2 cores; paper one accelerator with 24 GB or more.
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: beside the others', by study_fff_bert.
    """
    return with_equal_time(crammed_bert(scale), "1x11")


@experiment
def crammed_bert_no_ffn(scale: str) -> Experiment:
    """Crammed BERT without feedforward layers: what is left is what attention alone can do.

    Settings: those of crammed_bert.

    Command: python -m experiments.launch --exp=crammed_bert_no_ffn
    Hardware: demo any CPU with 2 cores; paper one accelerator with 24 GB or more.
    Time: demo 2 minutes; paper 24 hours of the reference device.
    Score: beside the others', by study_fff_bert.
    """
    return without_feedforward(crammed_bert(scale))


@study
def study_fff_bert(scale: str) -> Study:
    """What fast feedforward layers are worth at equal time: trees, dense layers, and none.

    A deep tree and several shallower ones, dense layers as wide as the paper's, the dense layers
    with the time and with the neurons of the deepest tree, and none; the same budget in reference
    time, three seeds. The demo takes data and learning rate from bert_baseline's, which learns
    within seconds; its layers are a twelfth as wide as the paper's, so that 1x7 stands for 1x11,
    and 256 for 3,072.

    Command: python -m experiments.launch --exp=study_fff_bert
    Hardware: demo any CPU; paper one accelerator with 24 GB or more.
    Time: demo 16 minutes on one core; paper 24 runs of 24 hours of the reference device.
    Score: python -m experiments.compare runs --baseline=crammed_bert_equal_time
    """
    base, deepest = _study_base(scale), _STUDY_TREES[scale][0]
    points = [
        *(with_width(base, width) for width in _STUDY_WIDTHS[scale]),
        *(with_trees(base, trees) for trees in _STUDY_TREES[scale]),
        with_equal_time(base, deepest),
        with_width(base, hard_trees(deepest).used_neurons),
        without_feedforward(base),
    ]
    seeds = range(_STUDY_SEEDS)
    runs = [dataclasses.replace(point, seed=seed) for seed in seeds for point in points]
    return Study(name="study_fff_bert", runs=tuple(runs))


def _study_base(scale: str) -> Experiment:
    if scale == "paper":
        return crammed_bert(scale)
    base = bert_baseline(scale)
    train = dataclasses.replace(
        base.train, num_evaluations=2, num_checkpoints=1, keep_checkpoints=1
    )
    assert isinstance(base.model, BertConfig)
    model = dataclasses.replace(base.model, gated=False, mlm_head="none")
    return dataclasses.replace(
        base, budget=_DEMO_BUDGET, model=model, train=train, tuning_trials=None
    )


def _register_trees(trees: str) -> None:
    def make(scale: str) -> Experiment:
        return with_trees(crammed_bert(scale), trees)

    cfg = hard_trees(trees)
    make.__name__ = f"fff_bert_{trees}"
    make.__doc__ = (
        f"Crammed BERT with {trees} trees: {cfg.num_neurons:,} neurons a layer, "
        f"{cfg.used_neurons:,} used.\n\n    {_FACTS.format(name=make.__name__)}"
    )
    experiment(make)


def _register_width(width: int) -> None:
    def make(scale: str) -> Experiment:
        return with_width(crammed_bert(scale), width)

    make.__name__ = f"crammed_bert_{width}"
    make.__doc__ = (
        f"Crammed BERT with a dense feedforward layer of {width:,} neurons.\n\n"
        f"    {_FACTS.format(name=make.__name__)}"
    )
    experiment(make)


for _trees in TREES:
    _register_trees(_trees)
for _width in WIDTHS:
    _register_width(_width)
