"""Bad pruning configurations are refused with the field, what is wrong, and a remedy."""

import subprocess
import sys

import pytest

from models.errors import UserError
from sparsity.config import RULES, Pattern, PruningConfig, parse_pattern
from sparsity.rules import make_rule


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"sparsity": 1.0}, "sparsity=1.0: the share of zeros lies in [0, 1)"),
        ({"sparsity": -0.1}, "sparsity=-0.1"),
        ({"rule": "magnitud"}, "Did you mean magnitude?"),
        ({"schedule": "cube"}, "schedule=cube: not one of cubic"),
        ({"pattern": "4:4"}, "needs 1 <= N < M"),
        ({"pattern": "5:4"}, "needs 1 <= N < M"),
        ({"pattern": "0:4"}, "needs 1 <= N < M"),
        ({"pattern": "2-4"}, "pattern=2-4: not a sparsity pattern"),
        ({"pattern": "block:1x1"}, "two weights or more"),
        ({"start_fraction": 0.8, "end_fraction": 0.5}, "0 <= start <= end <= 1"),
        ({"end_fraction": 1.5}, "end_fraction=1.5"),
        ({"update_every_steps": 0}, "update_every_steps=0"),
        ({"power": 0.0}, "power=0.0"),
        ({"drop_fraction": 2.0}, "drop_fraction=2.0"),
        ({"exclude": ("(",)}, "not a regular expression"),
        ({"rule": "rigl", "sparsity": 0.5}, "set schedule=constant"),
        (
            {"rule": "set", "schedule": "constant", "distribution": "global"},
            "use uniform or erk",
        ),
        ({"rule": "magnitude", "pattern": "2:4", "sparsity": 0.75}, "set sparsity=0.5"),
        ({"pattern": "block:4x4", "distribution": "global"}, "global threshold is unstructured"),
        (
            {"rule": "magnitude", "pattern": "1:4", "sparsity": 0.75, "distribution": "erk"},
            "N:M fixes the sparsity",
        ),
    ],
)
def test_refuses(fields, text):
    with pytest.raises(UserError) as error:
        PruningConfig(**fields).check()
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_defaults_and_patterns_are_accepted():
    PruningConfig().check()
    PruningConfig(rule="magnitude", sparsity=0.75, pattern="2:8").check()
    assert parse_pattern("4:8") == Pattern("n:m", (4, 8))
    assert parse_pattern("block:4x2") == Pattern("block", (4, 2))


def test_every_rule_that_can_be_named_exists():
    for rule in RULES[1:]:
        assert callable(make_rule(PruningConfig(rule=rule)).update)


def test_configuration_is_read_without_jax():
    code = "import sparsity.config, sys; assert not {'jax', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
