"""Configurations that cannot work are refused with what would."""

import pytest

from fff.config import FFFConfig, check_fits, hard_trees, soft_leaves
from models.config import BertConfig, T5Config
from models.errors import UserError


@pytest.mark.parametrize(
    ("cfg", "text"),
    [
        (FFFConfig(depth=-1), "depth=-1: must be from 0 to 20"),
        (FFFConfig(form="soft", depth=0), "depth=0: must be from 1 to 20. A soft layer of depth 0"),
        (FFFConfig(depth=21), "depth=21"),
        (FFFConfig(trees=0), "trees=0: must be at least 1"),
        (FFFConfig(form="soft", leaf_width=0), "leaf_width=0: must be at least 1"),
        (FFFConfig(form="sotf"), r"form=sotf: must be one of .* Did you mean soft\?"),
        (FFFConfig(kernel="gather"), "kernel=gather: must be one of auto"),
        (FFFConfig(leaf_width=4), "leaf_width=4: only the soft form has it; form is hard"),
        (FFFConfig(form="soft", trees=2), "trees=2: only the hard form has it; form is soft"),
        (FFFConfig(hardening=1.0), "hardening=1.0: only the soft form"),
        (FFFConfig(form="soft", region_leak=1.0), "region_leak=1.0"),
        (FFFConfig(form="soft", hardening=-1.0), "hardening=-1.0"),
        (FFFConfig(form="soft", train_hardened=True, hardening=1.0), "rounded gates"),
    ],
)
def test_check(cfg, text):
    with pytest.raises(UserError, match=text):
        cfg.check()


@pytest.mark.parametrize(
    ("name", "neurons", "used"),
    [("3072x0", 3072, 3072), ("512x2", 3584, 1536), ("128x4", 3968, 640), ("1x11", 4095, 12)],
)
def test_hard_trees(name, neurons, used):
    cfg = hard_trees(name)
    assert (cfg.num_neurons, cfg.used_neurons) == (neurons, used)


@pytest.mark.parametrize("name", ["1x", "x11", "11", "0x3", "1x99"])
def test_names_that_are_no_trees(name):
    with pytest.raises(UserError):
        hard_trees(name)


def test_soft_leaves():
    cfg = soft_leaves(128, 8)
    assert (cfg.depth, cfg.leaf_width, cfg.used_neurons, cfg.num_neurons) == (4, 8, 12, 143)


@pytest.mark.parametrize(("width", "leaf"), [(100, 8), (96, 8), (8, 8), (128, 0)])
def test_widths_that_are_no_power_of_two_of_leaves(width, leaf):
    with pytest.raises(
        UserError, match=f"training width {width} with leaves of {leaf}: .* would do"
    ):
        soft_leaves(width, leaf)


def test_models_that_have_no_such_layers():
    with pytest.raises(UserError, match="T5 has no such form"):
        check_fits(FFFConfig(), T5Config())
    with pytest.raises(UserError, match=r"model\.gated=true"):
        check_fits(FFFConfig(), BertConfig(gated=True, use_bias=False))
