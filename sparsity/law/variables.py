"""The normalised, bounded variables that the fit moves, and where it starts from.

The law's coefficients refer to N = 1 and D = 1, many decades from any run; there a change of an
exponent must be paid for by a change of a_S, c_S or a_D over decades. So the fit moves
    [log a, b_S, log c_S', b_N, log e, b_D, c, log m_1 .. log m_K]
with L = (a (1 - S)^b_S + c_S') (N / N0)^-b_N + e (D / D0)^-b_D + c, where N0 and D0 are the
geometric means over the points, and m_k is what a non-zero weight of N:M pattern k is worth in
dense weights.
"""

from typing import NamedTuple

import numpy as np

from sparsity.law.form import Coefficients, Numeric
from sparsity.law.points import UNSTRUCTURED, Points

# Positions of the variables; pattern multipliers follow.
LOG_A, B_S, LOG_C_S, B_N, LOG_E, B_D, FLOOR = range(7)

# exp(-10) of the loss range is far below what any measurement resolves.
_LOG_SCALE = (-10.0, 6.0)
_EXPONENT = (0.01, 3.0)
_SPARSITY_EXPONENT = (0.01, 8.0)
_LOG_MULTIPLIER = (-3.0, 3.0)


class Frame(NamedTuple):
    """The points in normalised form, with the bounds of the variables."""

    # log(N / N0), log(D / D0), 1 - S, loss; each (P,). Pattern runs count as dense.
    log_size: np.ndarray
    log_data: np.ndarray
    density: np.ndarray
    loss: np.ndarray
    # One-hot of the N:M pattern, (P, K).
    pattern: np.ndarray
    # log N0 and log D0.
    log_reference_size: float
    log_reference_data: float
    # Bounds of the variables, each (7 + K,).
    lower: np.ndarray
    upper: np.ndarray


def frame_of(points: Points) -> Frame:
    """Normalises the points and sets the bounds from the range of their losses."""
    log_size, log_data = np.log(points.size), np.log(points.data)
    patterns = points.patterns
    span = np.log(np.ptp(points.loss) + 1e-12 * np.max(points.loss))
    scale = (span + _LOG_SCALE[0], span + _LOG_SCALE[1])
    # A cross-entropy cannot be negative, so neither can its floor.
    floor = (0.0, float(np.max(points.loss)))
    bounds = [scale, _SPARSITY_EXPONENT, scale, _EXPONENT, scale, _EXPONENT, floor]
    bounds += [_LOG_MULTIPLIER] * len(patterns)
    lower, upper = np.array(bounds).T
    return Frame(
        log_size=log_size - log_size.mean(),
        log_data=log_data - log_data.mean(),
        density=np.where(points.pattern == UNSTRUCTURED, 1.0 - points.sparsity, 1.0),
        loss=points.loss,
        pattern=np.equal.outer(points.pattern, np.array(patterns, dtype=str)).astype(float),
        log_reference_size=float(log_size.mean()),
        log_reference_data=float(log_data.mean()),
        lower=lower,
        upper=upper,
    )


def to_coefficients(variables: Numeric, frame: Frame, xp=np) -> Coefficients:
    """Returns the coefficients of variables (..., 7 + K); `xp` is numpy or jax.numpy."""
    log_a, b_S, log_c, b_N, log_e, b_D, floor = (variables[..., i] for i in range(7))
    return Coefficients(
        a_S=xp.exp(log_a + b_N * frame.log_reference_size),
        b_S=b_S,
        c_S=xp.exp(log_c + b_N * frame.log_reference_size),
        b_N=b_N,
        a_D=xp.exp(frame.log_reference_data + log_e / b_D),
        b_D=b_D,
        c=floor,
    )


def to_variables(coefficients: Coefficients, frame: Frame) -> np.ndarray:
    """Returns the seven variables of given coefficients, with multipliers of 1 for patterns."""
    k = coefficients
    law = [
        np.log(k.a_S) - k.b_N * frame.log_reference_size,
        k.b_S,
        np.log(k.c_S) - k.b_N * frame.log_reference_size,
        k.b_N,
        k.b_D * (np.log(k.a_D) - frame.log_reference_data),
        k.b_D,
        k.c,
    ]
    return np.array(law + [0.0] * (len(frame.lower) - len(law)))


def random_starts(frame: Frame, count: int, seed: tuple[int, ...]) -> np.ndarray:
    """Returns (count, 7 + K) starts spread over everything that is plausible for such losses."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    span = np.ptp(frame.loss)
    ranges = [(0.05 * span, 1.05 * span), (0.1, 2.1), (0.05 * span, 1.05 * span), (0.05, 1.05)]
    ranges += [(0.05 * span, 1.05 * span), (0.05, 1.25), (0.0, float(np.min(frame.loss)))]
    ranges += [(-0.5, 1.5)] * (len(frame.lower) - len(ranges))
    low, high = np.array(ranges).T
    starts = low + (high - low) * generator.uniform(size=(count, len(low)))
    for scale in (LOG_A, LOG_C_S, LOG_E):
        starts[:, scale] = np.log(starts[:, scale])
    return np.clip(starts, frame.lower, frame.upper)
