"""Hard trees as Pallas kernels, one for TPUs and one for GPUs; elsewhere they are interpreted.

Neither has been timed on its device. Both are checked against the other kernels by interpretation
on the CPU, and both are compiled for their device ahead of time in the tests.
"""

import jax
import jax.numpy as jnp

from fff import pallas_gpu, pallas_tpu
from fff.config import FFFConfig
from fff.tables import Tables


def forward(
    cfg: FFFConfig, x_TD: jax.Array, tables: Tables, device: str | None = None
) -> jax.Array:
    """Returns what the trees write, float32 (T, D).

    `device` is "tpu" or "gpu", by default the one that there is; the TPU's kernel is interpreted
    where there is neither.
    """
    here = jax.default_backend()
    device = device or (here if here in ("tpu", "gpu") else "tpu")
    run = pallas_tpu.forward if device == "tpu" else pallas_gpu.forward
    tables = tables._replace(bias_N=tables.bias_N.astype(jnp.float32))
    return run(cfg, x_TD.astype(jnp.float32), tables, interpret=here == "cpu")
