"""Memory of one step serves the next: no page is asked of the kernel again."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from models.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import jax, jax.numpy as jnp
step = jax.jit(lambda x: jnp.tanh(jnp.tanh(x @ x.T) @ x), donate_argnums=0)
x = jnp.ones((4000, 100))
for _ in range(5):
    x = jax.block_until_ready(step(x))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    x = jax.block_until_ready(step(x))
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""


def faults_per_step(mode):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's malloc can be told")
def test_page_faults_stop():
    # The product of 4,000 x 4,000 floats alone is 15,600 pages.
    by_default = faults_per_step("default")
    assert by_default > 15_000
    assert faults_per_step("keep") < by_default / 3
