"""What the best sparsity buys for one number of weights and one training budget."""

from typing import NamedTuple

import numpy as np

from sparsity.law.accounting import training_multiple
from sparsity.law.form import Coefficients, Numeric, data_term, equivalent_size, loss, size_term
from sparsity.law.optimal import dense_optimal_compute, dense_optimal_size, optimal_sparsity

_HALVINGS = 100


class Decision(NamedTuple):
    """N non-zero weights and C training FLOPs under one accounting; arrays where resampled."""

    # The sparsity of lowest loss.
    sparsity: Numeric
    # C over the compute for which N dense weights are optimal.
    multiple: Numeric
    # Loss of N dense weights for C FLOPs, minus the loss reached.
    loss_gained: Numeric
    # Dense weights that reach the same loss on the same data, and the training FLOPs of the sparse
    # run over theirs.
    equal_data_size: Numeric
    equal_data_cost: Numeric
    # Dense weights that reach the same loss for the same FLOPs (on less data); inf where none do.
    equal_cost_size: Numeric
    # Fraction of the non-zero weights at inference that is saved against those.
    weights_saved: Numeric
    # FLOPs that N dense weights need for the same loss, over C; inf where no data suffice.
    dense_cost: Numeric


def decide(coefficients: Coefficients, size: float, compute: Numeric, accounting: str) -> Decision:
    """Returns the best sparsity for `size` non-zeros and `compute` FLOPs, and what it is worth."""
    sparsity = optimal_sparsity(coefficients, size, compute, accounting)
    cost = training_multiple(sparsity, accounting)
    dense_data = compute / (6.0 * size)
    reached = loss(coefficients, sparsity, size, dense_data / cost)
    worth = equivalent_size(coefficients, sparsity)
    equal_cost = _equal_cost_size(coefficients, size, compute, reached)
    return Decision(
        sparsity=sparsity,
        multiple=compute / dense_optimal_compute(coefficients, size),
        loss_gained=loss(coefficients, 0.0, size, dense_data) - reached,
        equal_data_size=worth * size,
        equal_data_cost=cost / worth,
        equal_cost_size=equal_cost,
        weights_saved=1.0 - size / equal_cost,
        dense_cost=_dense_data(coefficients, size, reached) / dense_data,
    )


def _dense_data(coefficients: Coefficients, size: float, reached: Numeric) -> np.ndarray:
    """Returns the data on which `size` dense weights reach a loss, inf where none suffice."""
    left = reached - size_term(coefficients, 0.0, size) - coefficients.c
    possible = left > 0
    needed = coefficients.a_D * np.where(possible, left, 1.0) ** (-1.0 / coefficients.b_D)
    return np.where(possible, needed, np.inf)


def _equal_cost_size(
    coefficients: Coefficients, size: float, compute: Numeric, reached: Numeric
) -> np.ndarray:
    """Returns the dense size that reaches a loss for `compute` FLOPs, by bisection.

    From `size` towards the compute-optimal size the dense loss falls; where even its minimum is
    above `reached`, no dense model will do, and the answer is inf.
    """

    def dense_loss(log_size: np.ndarray) -> np.ndarray:
        many = np.exp(log_size)
        data = data_term(coefficients, compute / (6.0 * many))
        return size_term(coefficients, 0.0, many) + data + coefficients.c

    optimum = np.log(dense_optimal_size(coefficients, compute))
    start, end = np.broadcast_arrays(np.log(size), optimum)
    possible = dense_loss(end) <= reached
    for _ in range(_HALVINGS):
        middle = 0.5 * (start + end)
        above = dense_loss(middle) > reached
        start, end = np.where(above, middle, start), np.where(above, end, middle)
    return np.where(possible, np.exp(end), np.inf)
