"""The hard path by the best kernel for the device and the number of tokens, or by a named one."""

from functools import partial
from typing import Any

import jax
from jax.sharding import PartitionSpec as P

from fff import build, cpp, pallas, xla
from fff.config import KERNELS, FFFConfig
from fff.tables import Tables, check_tables
from models.errors import UserError, did_you_mean
from models.mesh import BATCH_AXES

# From this share of used neurons on, products with all of them take less time than reading those
# on the path. Measured by `python -m fff.benchmark --training` on AVX-512 cores; on a GPU or TPU,
# where nothing has been measured yet, the figures of XLA's gather stand in.
_DENSE_FROM_SHARE = {"cpp": 0.25, "xla": 0.02}
# The same for a step of training, forward and backward.
_DENSE_TRAINING_FROM_SHARE = {"cpp": 0.13, "xla": 0.02}


def choose_kernel(cfg: FFFConfig, platform: str | None = None) -> str:
    """Returns the kernel that computes the hard path where there is no gradient to take.

    Without `platform`, that of JAX's default backend. The Pallas kernel has not been timed on any
    device yet, so that it is taken only where it is asked for. Raises UserError for a kernel that
    `cfg` names and that cannot run here.
    """
    platform = platform or jax.default_backend()
    if cfg.kernel == "cpp" and not (platform == "cpu" and build.is_available()):
        why = "it could not be built" if platform == "cpu" else f"this device is a {platform}"
        raise UserError(f"kernel=cpp: it is for the CPU, and {why}; kernel=auto takes another one.")
    if cfg.kernel != "auto":
        return cfg.kernel
    return _choose(cfg, platform, _DENSE_FROM_SHARE)


def choose_training(cfg: FFFConfig, platform: str | None = None) -> str:
    """Returns the kernel of a training step: "dense" over all neurons, or one that gathers."""
    platform = platform or jax.default_backend()
    if cfg.training == "dense":
        return "dense"
    if cfg.training == "gather":
        return "cpp" if platform == "cpu" and build.is_available() else "xla"
    return _choose(cfg, platform, _DENSE_TRAINING_FROM_SHARE)


def _choose(cfg: FFFConfig, platform: str, dense_from: dict[str, float]) -> str:
    gathers = "cpp" if platform == "cpu" and build.is_available() else "xla"
    is_dense = cfg.used_neurons > dense_from[gathers] * cfg.num_neurons
    return "dense" if is_dense else gathers


def hard_path(cfg: FFFConfig, x: jax.Array, tables: Tables, kernel: str) -> jax.Array:
    """Returns what the trees write for tokens x (..., D), in the dtype of x.

    `kernel` is one of "xla", "cpp", "pallas" and "dense"; all decide by float32 logits and differ
    in rounding only (see `xla.masked_dense` on bfloat16). Each has the gradient of the path that
    was taken, none through the choice of it. A token with a NaN gets NaN, and goes left at every
    node. Inside `models.mesh.on_mesh` each device does its own tokens with whole tables. Raises
    UserError for an unknown kernel and for tables that do not fit.
    """
    known = tuple(name for name in KERNELS if name != "auto")
    if kernel not in known:
        raise UserError(
            f"kernel={kernel}: must be one of {', '.join(known)}.{did_you_mean(kernel, known)}"
        )
    x_TD = x.reshape(-1, x.shape[-1])
    check_tables(cfg, x_TD, tables)
    if kernel == "dense":
        return xla.masked_dense(cfg, x_TD, tables).reshape(x.shape).astype(x.dtype)
    return _by_device(partial(_gathered, cfg, kernel), x, tables)


def _by_device(run: Any, x: jax.Array, tables: Tables) -> jax.Array:
    """Runs on each device's own examples: XLA cannot see how a kernel may be split."""

    def whole(x: jax.Array, tables: Tables) -> jax.Array:
        return run(x.reshape(-1, x.shape[-1]), tables).reshape(x.shape).astype(x.dtype)

    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return whole(x, tables)
    return jax.shard_map(
        whole, mesh=mesh, in_specs=(P(BATCH_AXES), P()), out_specs=P(BATCH_AXES), check_vma=False
    )(x, tables)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _gathered(cfg: FFFConfig, kernel: str, x_TD: jax.Array, tables: Tables) -> jax.Array:
    if kernel == "cpp":
        return cpp.forward(cfg, x_TD, tables)
    if kernel == "pallas":
        return pallas.forward(cfg, x_TD, tables)
    return xla.gather(cfg, x_TD, tables)[0]


def _gathered_forward(cfg: FFFConfig, kernel: str, x_TD: jax.Array, tables: Tables) -> Any:
    if kernel == "cpp":
        y_TD, path = cpp.forward_with_path(cfg, x_TD, tables)
    elif kernel == "pallas":
        y_TD, path = pallas.forward(cfg, x_TD, tables), xla.walk(cfg, x_TD, tables)
    else:
        y_TD, path = xla.gather(cfg, x_TD, tables)
    return y_TD, (x_TD, tables, path)


def _gathered_backward(cfg: FFFConfig, kernel: str, saved: Any, grad_TD: jax.Array) -> Any:
    x_TD, tables, path = saved
    backward = cpp.backward if kernel == "cpp" else xla.scatter
    grad_x_TD, grads = backward(cfg, x_TD, tables, path, grad_TD)
    return grad_x_TD.astype(x_TD.dtype), jax.tree.map(
        lambda grad, table: grad.astype(table.dtype), grads, tables
    )


_gathered.defvjp(_gathered_forward, _gathered_backward)
