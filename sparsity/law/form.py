"""The law L(S, N, D) and the dense size that a sparse model is worth."""

from typing import Any, NamedTuple

# A float, a NumPy array or a JAX array: the formulas use operators only, so they serve all three.
Numeric = Any


class Coefficients(NamedTuple):
    """The seven coefficients of the law; arrays of equal length stand for resamples.

    Source: Frantar, Riquelme, Houlsby, Alistarh, Evci, "Scaling Laws for Sparsely-Connected
    Foundation Models", ICLR 2024 (arXiv 2309.08520).
    """

    a_S: Numeric
    b_S: Numeric
    c_S: Numeric
    b_N: Numeric
    a_D: Numeric
    b_D: Numeric
    c: Numeric


def size_term(coefficients: Coefficients, sparsity: Numeric, size: Numeric) -> Numeric:
    """Returns (a_S (1 - S)^b_S + c_S) N^-b_N, the part of the loss that more weights remove."""
    k = coefficients
    return (k.a_S * (1.0 - sparsity) ** k.b_S + k.c_S) * size**-k.b_N


def data_term(coefficients: Coefficients, data: Numeric) -> Numeric:
    """Returns (a_D / D)^b_D, the part of the loss that more data removes."""
    return (coefficients.a_D / data) ** coefficients.b_D


def loss(coefficients: Coefficients, sparsity: Numeric, size: Numeric, data: Numeric) -> Numeric:
    """Returns L(S, N, D) = (a_S (1 - S)^b_S + c_S) N^-b_N + (a_D / D)^b_D + c.

    `sparsity` S is the fraction of zero weights at the end of training, `size` N the number of
    non-zero weights outside embeddings, `data` D tokens or images. All broadcast.
    """
    return size_term(coefficients, sparsity, size) + data_term(coefficients, data) + coefficients.c


def equivalent_size(coefficients: Coefficients, sparsity: Numeric) -> Numeric:
    """Returns how many dense weights one non-zero weight at sparsity S is worth, at equal data.

    eff(S) = [(a_S (1 - S)^b_S + c_S) / (a_S + c_S)]^(-1 / b_N), for every N and D.
    """
    k = coefficients
    return ((k.a_S * (1.0 - sparsity) ** k.b_S + k.c_S) / (k.a_S + k.c_S)) ** (-1.0 / k.b_N)
