"""Configurations name the field that cannot work, and need no JAX."""

import subprocess
import sys

import pytest

from models.config import T5Config
from models.errors import UserError


def test_defaults_pass():
    T5Config().check()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"activation": "gelu_tan"}, r"activation=gelu_tan: .*Did you mean gelu_tanh\?"),
        ({"remat": "all"}, "remat=all: must be one of none, dots, full"),
        ({"compute_dtype": "bf16"}, "compute_dtype=bf16: .*bfloat16"),
        ({"param_dtype": "int8"}, "param_dtype=int8"),
        ({"attention": "flash"}, "attention=flash"),
        ({"num_heads": 0}, "num_heads=0: must be at least 1"),
        ({"num_decoder_layers": -1}, "num_decoder_layers=-1: must be at least 1"),
        ({"dropout": 1.0}, "dropout=1.0: must be at least 0 and below 1"),
        ({"z_loss": -1.0}, "z_loss=-1.0"),
        ({"label_smoothing": 1.5}, "label_smoothing=1.5"),
        ({"norm_epsilon": -1e-6}, "norm_epsilon=-1e-06"),
        ({"relative_buckets": 7}, "relative_buckets=7: must be even and at least 4"),
        ({"relative_max_distance": 16}, "relative_max_distance=16: must be more than .* = 16"),
    ],
)
def test_errors_name_the_field(changes, text):
    with pytest.raises(UserError, match=text):
        T5Config(**changes).check()


def test_importing_needs_no_jax():
    code = "import sys, models.config; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
