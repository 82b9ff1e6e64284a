"""The best sparsity for a number of non-zero weights and a training budget."""

import numpy as np

from sparsity.law.accounting import training_multiple
from sparsity.law.form import Coefficients, Numeric

# Bisection in log density: 0 down to 1e-12, halved 60 times, is exact to float64.
_LOWEST_LOG_DENSITY = np.log(1e-12)
_HALVINGS = 60


def dense_optimal_data(coefficients: Coefficients, size: Numeric) -> Numeric:
    """Returns D*(N), the data at which N dense weights are the best use of 6 N D FLOPs.

    D* = a_D [b_D N^b_N / (b_N (a_S + c_S))]^(1 / b_D): on the "Chinchilla" line of the law.
    """
    k = coefficients
    return k.a_D * (k.b_D * size**k.b_N / (k.b_N * (k.a_S + k.c_S))) ** (1.0 / k.b_D)


def dense_optimal_compute(coefficients: Coefficients, size: Numeric) -> Numeric:
    """Returns 6 N D*(N), the FLOPs for which N dense weights are optimal."""
    return 6.0 * size * dense_optimal_data(coefficients, size)


def dense_optimal_size(coefficients: Coefficients, compute: Numeric) -> Numeric:
    """Returns the number of dense weights that reaches the lowest loss for `compute` FLOPs."""
    k = coefficients
    ratio = k.b_N * (k.a_S + k.c_S) / (k.b_D * (6.0 * k.a_D / compute) ** k.b_D)
    return ratio ** (1.0 / (k.b_N + k.b_D))


def chinchilla_multiple(coefficients: Coefficients, sparsity: Numeric, accounting: str) -> Numeric:
    """Returns M(S): S is the best sparsity at M times the dense-optimal compute, for every N.

    From dL/dS = 0 at fixed N and C = 6 N D c_mul(S):
    computed: M = [b_N (a_S + c_S) / (a_S b_S) (1 - S)^-(b_S + b_D)]^(1 / b_D)
    skipped:  M = [b_N (a_S + c_S) / (a_S b_S) 0.375 c_mul^(b_D - 1) (1 - S)^-(b_S + 1)]^(1 / b_D)
    """
    k = coefficients
    density = 1.0 - sparsity
    dense_share = k.b_N * (k.a_S + k.c_S) / (k.a_S * k.b_S)
    cost = training_multiple(sparsity, accounting)
    if accounting == "computed":
        return (dense_share * density ** -(k.b_S + k.b_D)) ** (1.0 / k.b_D)
    slope = 0.375 * cost ** (k.b_D - 1.0) * density ** -(k.b_S + 1.0)
    return (dense_share * slope) ** (1.0 / k.b_D)


def optimal_sparsity(
    coefficients: Coefficients, size: Numeric, compute: Numeric, accounting: str
) -> np.ndarray:
    """Returns S_opt(N, C), zero where no sparsity helps.

    With zeros computed this is the closed form
    S_opt = max{1 - exp[(ln(b_D / (a_S b_S)) + b_N ln N) / (b_D + b_S)]
                    (6 N a_D / C)^(b_D / (b_D + b_S)), 0}.
    With zeros skipped there is none; M(S) rises with S, so M(S) = C / C*(N) has one root.
    """
    if accounting == "computed":
        k = coefficients
        log_term = (np.log(k.b_D / (k.a_S * k.b_S)) + k.b_N * np.log(size)) / (k.b_D + k.b_S)
        power = (6.0 * size * k.a_D / compute) ** (k.b_D / (k.b_D + k.b_S))
        return np.maximum(1.0 - np.exp(log_term) * power, 0.0)
    return sparsity_at_multiple(
        coefficients, compute / dense_optimal_compute(coefficients, size), accounting
    )


def sparsity_at_multiple(
    coefficients: Coefficients, multiple: Numeric, accounting: str
) -> np.ndarray:
    """Returns the best sparsity at `multiple` times the dense-optimal compute, by bisection."""
    shape = np.broadcast_shapes(np.shape(multiple), np.shape(coefficients.c))
    sparser = np.full(shape, _LOWEST_LOG_DENSITY)
    denser = np.zeros(shape)
    for _ in range(_HALVINGS):
        middle = 0.5 * (sparser + denser)
        reached = chinchilla_multiple(coefficients, 1.0 - np.exp(middle), accounting) <= multiple
        denser = np.where(reached, middle, denser)
        sparser = np.where(reached, sparser, middle)
    helps = chinchilla_multiple(coefficients, 0.0, accounting) < multiple
    return np.where(helps, 1.0 - np.exp(denser), 0.0)
