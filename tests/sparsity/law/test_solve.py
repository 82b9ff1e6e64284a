"""The objective, its derivatives and its minimum against independent implementations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.special

from sparsity.law import solve
from sparsity.law.form import loss
from sparsity.law.variables import frame_of, random_starts, to_coefficients, to_variables
from tests.sparsity.law.planted import LAW, points

NOISY = points(noise=0.01)
FRAME = frame_of(NOISY)


def numpy_objective(variables, residual, delta, weights=1.0):
    """Mean Huber loss through the published form and SciPy's Huber function."""
    law = to_coefficients(variables, FRAME)
    predicted = loss(law, NOISY.sparsity, NOISY.size, NOISY.data)
    ours, theirs = (
        (np.log(predicted), np.log(NOISY.loss))
        if residual == "log"
        else (
            predicted,
            NOISY.loss,
        )
    )
    return np.average(
        scipy.special.huber(delta, ours - theirs), weights=np.broadcast_to(weights, ours.shape)
    )


def jax_objective(variables, residual, delta):
    axes = FRAME.log_size, FRAME.log_data, FRAME.density
    ones = jnp.ones(len(NOISY))
    identity = jnp.eye(len(variables))
    return solve._objective(
        variables,
        identity,
        ones,
        jnp.asarray(NOISY.loss),
        axes,
        FRAME.pattern,
        delta,
        residual == "log",
    )


@pytest.mark.parametrize(("residual", "delta"), [("raw", 0.01), ("log", 0.001)])
def test_objective_and_gradient(residual, delta):
    for variables in random_starts(FRAME, 3, seed=(5,)):
        with jax.enable_x64(True):
            value, gradient = jax.value_and_grad(jax_objective)(
                jnp.asarray(variables), residual, delta
            )
            value, gradient = float(value), np.asarray(gradient)
        expected = numpy_objective(variables, residual, delta) / delta**2
        assert value == pytest.approx(expected, rel=1e-11)
        slope = scipy.optimize.approx_fprime(
            variables, lambda x: numpy_objective(x, residual, delta) / delta**2, 1e-7
        )
        np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=1e-5 * np.abs(slope).max())


def test_variables_and_coefficients_convert_both_ways():
    back = to_coefficients(to_variables(LAW, FRAME), FRAME)
    np.testing.assert_allclose(back, LAW, rtol=1e-12)


def test_minimum_is_scipys():
    starts = random_starts(FRAME, 8, seed=(6,))
    solved = solve.minimise(FRAME, solve.problem(FRAME, starts), "log", 0.001)
    ours = solved.objective.min()
    bounds = list(zip(FRAME.lower, FRAME.upper, strict=True))
    theirs = min(
        scipy.optimize.minimize(
            lambda x: numpy_objective(x, "log", 0.001) * 1e6,
            start,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 5000, "maxfun": 200_000, "ftol": 1e-15, "gtol": 1e-9},
        ).fun
        for start in starts[:2]
    )
    assert ours <= theirs / 1e6 * (1 + 1e-9)
    assert ours == pytest.approx(theirs / 1e6, rel=1e-3)
    assert solved.gradient[np.argmin(solved.objective)] < 1e-8


def test_weights_bounds_and_ties_are_obeyed():
    start = to_variables(LAW, FRAME)[None]
    rows = solve.problem(FRAME, np.repeat(start, 2, axis=0))
    rows.weights[0, ::3] = 0.0
    rows.lower[1, 5] = rows.upper[1, 5] = rows.start[1, 5] = 0.7
    solved = solve.minimise(FRAME, rows, "log", 0.001)
    expected = numpy_objective(solved.variables[0], "log", 0.001, rows.weights[0])
    assert solved.objective[0] == pytest.approx(expected, rel=1e-9)
    assert solved.variables[1, 5] == 0.7
    assert solved.objective[1] == pytest.approx(
        numpy_objective(solved.variables[1], "log", 0.001), rel=1e-9
    )


def test_float64_stays_inside():
    solve.evaluate(FRAME, to_variables(LAW, FRAME), "log", 0.001)
    assert jnp.ones(2).dtype == jnp.float32
