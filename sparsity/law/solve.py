"""Minimises the Huber loss of the law for many problems at once, with exact derivatives.

Every fit of this package is a row of one batch: a start of the multi-start, a bootstrap resample
(weights), a held-out set (zero weights), a point of a profile (one variable fixed). So all of them
run through one compiled program.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.law.variables import B_D, B_N, FLOOR, LOG_A, LOG_C_S, LOG_E, Frame
from sparsity.law.variables import B_S as EXPONENT_S

# Rows are padded to multiples of this, so that one program serves any number of problems.
_ROWS = 64
_MAX_STEPS = 500
# A first pass with a wide quadratic zone finds the valley in a third of the steps; then the real
# one. Each is (factor on delta, projected gradient to stop at).
_PASSES = ((30.0, 1e-3), (1.0, 1e-9))
_MAX_DAMPING = 1e14


class Problem(NamedTuple):
    """A batch of B fits; V = 7 + K variables, P points."""

    # (B, V) where to start, and the box to stay in; equal bounds fix a variable.
    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    # (B, P) weight of each point.
    weights: np.ndarray
    # (B, P) measured losses.
    target: np.ndarray
    # (B, V, V): variables of the law = tie @ what is minimised over.
    tie: np.ndarray


class Solution(NamedTuple):
    """What came out of a batch."""

    # (B, V) variables of the law at the minimum.
    variables: np.ndarray
    # (B,) mean Huber loss, in squared units of the residual.
    objective: np.ndarray
    # (B,) largest component of the projected gradient of objective / delta^2.
    gradient: np.ndarray


def problem(frame: Frame, starts: np.ndarray) -> Problem:
    """Returns the plain problem from each start: all points, all variables free."""
    count, width = starts.shape
    return Problem(
        start=starts,
        lower=np.tile(frame.lower, (count, 1)),
        upper=np.tile(frame.upper, (count, 1)),
        weights=np.ones((count, len(frame.loss))),
        target=np.tile(frame.loss, (count, 1)),
        tie=np.tile(np.eye(width), (count, 1, 1)),
    )


def minimise(frame: Frame, problems: Problem, residual: str, delta: float) -> Solution:
    """Minimises every row to a projected gradient of 1e-9, in float64 on the CPU.

    Objectives of order 1e-6 need float64, and matrices of seven by seven no accelerator.
    """
    axes = tuple(np.asarray(a) for a in (frame.log_size, frame.log_data, frame.density))
    count = len(problems.start)
    parts = []
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        for first in range(0, count, _ROWS):
            rows = np.minimum(np.arange(first, first + _ROWS), count - 1)
            batch = Problem(*(part[rows] for part in problems))
            for widening, tolerance in _PASSES:
                free, *values = _minimise_rows(
                    batch, axes, frame.pattern, widening * delta, tolerance, log=residual == "log"
                )
                batch = batch._replace(start=free)
            variables = np.einsum("bij,bj->bi", batch.tie, free)
            solved = (variables, *map(np.asarray, values))
            parts.append([part[: count - first] for part in solved])
    variables, objective, gradient = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Solution(variables, objective * delta**2, gradient)


def evaluate(frame: Frame, variables: np.ndarray, residual: str, delta: float) -> float:
    """Returns the objective of given variables on all points, without moving them."""
    fixed = problem(frame, variables[None])._replace(lower=variables[None], upper=variables[None])
    return float(minimise(frame, fixed, residual, delta).objective[0])


def predict(variables, axes, pattern):
    """Returns the law's losses (P,) of normalised variables (V,)."""
    log_size, log_data, density = axes
    log_size = log_size + pattern @ variables[FLOOR + 1 :]
    scale = jnp.exp(variables[LOG_A]) * density ** variables[EXPONENT_S] + jnp.exp(
        variables[LOG_C_S]
    )
    size_term = scale * jnp.exp(-variables[B_N] * log_size)
    data_term = jnp.exp(variables[LOG_E] - variables[B_D] * log_data)
    return size_term + data_term + variables[FLOOR]


def _objective(free, tie, weights, target, axes, pattern, delta, log):
    """Weighted mean Huber loss over delta^2, so that it is of order one for any delta."""
    predicted = predict(tie @ free, axes, pattern)
    residual = (jnp.log(predicted) - jnp.log(target) if log else predicted - target) / delta
    size = jnp.abs(residual)
    huber = jnp.where(size <= 1.0, 0.5 * residual**2, size - 0.5)
    return jnp.sum(weights * huber) / jnp.sum(weights)


@functools.partial(jax.jit, static_argnames="log")
def _minimise_rows(batch: Problem, axes, pattern, delta, tolerance, log):
    def one(row: Problem):
        def objective(x):
            return _objective(x, row.tie, row.weights, row.target, axes, pattern, delta, log)

        return _newton(objective, row.start, row.lower, row.upper, tolerance)

    return jax.vmap(one)(batch)


class _State(NamedTuple):
    x: jax.Array
    value: jax.Array
    gradient: jax.Array
    damping: jax.Array
    step: jax.Array


def _newton(objective, start, lower, upper, tolerance):
    """Projected Newton steps with exact Hessian, damped until they descend.

    Eigenvalues enter by magnitude, so saddle points repel; variables at a bound whose gradient
    points outwards are left out of the step.
    """
    value_and_grad, hessian = jax.value_and_grad(objective), jax.hessian(objective)

    def blocked(x, gradient):
        return ((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0))

    def projected(state: _State):
        return jnp.where(blocked(state.x, state.gradient), 0.0, state.gradient)

    def unfinished(state: _State):
        moving = jnp.max(jnp.abs(projected(state))) > tolerance
        return moving & (state.step < _MAX_STEPS) & (state.damping < _MAX_DAMPING)

    def advance(state: _State) -> _State:
        free = ~blocked(state.x, state.gradient)
        curvature = jnp.where(free[:, None] & free[None, :], hessian(state.x), jnp.diag(1.0 - free))
        eigenvalues, vectors = jnp.linalg.eigh(curvature)
        along = vectors.T @ projected(state) / (jnp.abs(eigenvalues) + state.damping)
        x = jnp.clip(state.x - vectors @ along, lower, upper)
        value, gradient = value_and_grad(x)
        new = _State(x, value, gradient, jnp.maximum(state.damping / 5.0, 1e-12), state.step + 1)
        # Within rounding of the minimum the value says nothing more, but the gradient does.
        level = value <= state.value * (1.0 + 1e-14)
        steeper = jnp.max(jnp.abs(projected(new))) >= jnp.max(jnp.abs(projected(state)))
        accepted = (value < state.value) | (level & ~steeper)
        stay = state._replace(damping=state.damping * 4.0, step=state.step + 1)
        return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, stay)

    value, gradient = value_and_grad(start)
    first = _State(start, value, gradient, jnp.asarray(1.0, start.dtype), jnp.asarray(0))
    last = jax.lax.while_loop(unfinished, advance, first)
    return last.x, last.value, jnp.max(jnp.abs(projected(last)))
