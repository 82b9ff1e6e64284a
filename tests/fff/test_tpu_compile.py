"""The Pallas kernel is compiled ahead of time for a TPU, where libtpu is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
from functools import partial
import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from fff import pallas_tpu
from fff.config import FFFConfig
from fff.tables import Tables

device = topologies.get_topology_desc("v5e:2x2", platform="tpu").devices[0]
array = partial(jax.ShapeDtypeStruct, sharding=SingleDeviceSharding(device))
for dtype in ("float32", "bfloat16"):
    tables = Tables(*(array(s, d) for s, d in (
        ((4095, 768), dtype), ((4095,), "float32"), ((4095, 768), dtype))))
    function = jax.jit(partial(pallas_tpu.forward, FFFConfig()))
    compiled = function.lower(array((1024, 768), "float32"), tables).compile()
    print(dtype, compiled.memory_analysis().temp_size_in_bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed (pip install jax[tpu], or set TPU_LIBRARY_PATH)",
)
def test_compiles_for_a_tpu():
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu"},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["float32", "bfloat16"]
