"""The only file that knows Flax NNX: modules in, pure functions over nested plain dicts out.

Modules are used as trees: built from a key, split into structure and parameters, merged back for a
call. No module keeps random state, and every transformation (jit, grad, scan) is JAX's own.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

import jax
from flax import nnx

Module = nnx.Module
Param = nnx.Param
Params = dict[str, Any]
M = TypeVar("M", bound=nnx.Module)


class Functional(NamedTuple):
    """A module as two pure functions."""

    # (key) -> nested dict of arrays
    init: Callable[[jax.Array], Params]
    # (params, method, *args, **kwargs) -> what that method of the module returns
    apply: Callable[..., Any]


def functional(make: Callable[[jax.Array], nnx.Module]) -> Functional:
    """Turns `make`, which builds a module from a key, into `init` and `apply` over plain dicts.

    Names in the dict are the attribute names of the modules. `apply(params, method, ...)` takes the
    method unbound, as in `apply(params, T5.logits, batch)`.
    """
    with _trees():
        abstract = nnx.eval_shape(lambda: make(jax.random.key(0)))
        structure, state = nnx.split(abstract, nnx.Param)

    def init(key: jax.Array) -> Params:
        with _trees():
            return nnx.to_pure_dict(nnx.state(make(key), nnx.Param))

    def apply(params: Params, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _trees():
            filled = jax.tree.map(lambda leaf: leaf, state)
            nnx.replace_by_pure_dict(filled, params)
            return method(nnx.merge(structure, filled), *args, **kwargs)

    return Functional(init, apply)


def stack(make_layer: Callable[[jax.Array], M], key: jax.Array, num_layers: int) -> M:
    """Returns one module whose every parameter holds those of `num_layers` layers on axis 0."""
    return jax.vmap(make_layer)(jax.random.split(key, num_layers))


def _trees() -> ExitStack:
    """NNX's tree mode: modules are pytrees without shared references, and calls do not mutate."""
    modes = ExitStack()
    modes.enter_context(nnx.set_graph_mode(False))
    modes.enter_context(nnx.set_graph_updates(False))
    return modes
