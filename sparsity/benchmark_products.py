"""Times products with sparse matrices against the dense product of the same shape."""

import math
import statistics
from collections.abc import Callable
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.experimental.sparse import BCSR

from sparsity.benchmark_training import interleave
from sparsity.patterns import nm_members

# (in, out) of the distinct matrices of a layer.
SHAPES = {
    "BERT-base attention": (768, 768),
    "BERT-base wi": (768, 3072),
    "BERT-base wo": (3072, 768),
    "T5-base wi": (768, 2048),
    "T5-base wo": (2048, 768),
}
PATTERNS = ("50 %", "75 %", "90 %", "95 %", "99 %", "2:4")
TOKENS = (1, 32, 1024)
SPARSE_FORMS = ("BCSR", "scipy CSR")
FORMS = ("dense", "masked dense", *SPARSE_FORMS)


class Product(TypedDict):
    """One matrix, one number of tokens, one pattern: medians and bytes by form."""

    shape: str
    tokens: int
    pattern: str
    sparsity: float
    seconds: dict[str, float]
    bytes: dict[str, int]


def products(shape: str, tokens: int, rounds: int) -> list[Product]:
    """Times x @ W for every pattern: dense, masked, as BCSR of jax and as CSR of scipy.

    Sparse forms compute Wᵀ xᵀ, because both keep the sparse operand on the left; x and the result
    are laid out as that needs, and no time is charged for it. scipy runs on the host, on one core.
    """
    return [_product(shape, tokens, pattern, rounds) for pattern in PATTERNS]


def break_even(rows: list[Product], form: str) -> float | None:
    """Returns the unstructured sparsity from which on `form` beats dense; None if it never does.

    It must do so at every higher sparsity that was measured. Between two of them the ratio of times
    is taken to be a power of the density.
    """
    points = [
        (1 - row["sparsity"], row["seconds"][form] / row["seconds"]["dense"])
        for row in rows
        if row["pattern"] != "2:4"
    ]
    last_slow = max((i for i, (_, ratio) in enumerate(points) if ratio > 1), default=None)
    if last_slow is None:
        return 1 - points[0][0]
    if last_slow == len(points) - 1:
        return None
    (left, slow), (right, fast) = points[last_slow : last_slow + 2]
    share = math.log(slow) / (math.log(slow) - math.log(fast))
    return 1 - left * (right / left) ** share


def matrix(shape: tuple[int, int], pattern: str, generator: np.random.Generator) -> np.ndarray:
    """Returns a random (in, out) float32 matrix with the zeros that the pattern asks for."""
    weights = generator.normal(size=shape).astype(np.float32)
    if pattern == "2:4":
        return np.where(nm_members(jnp.abs(weights), 2, 4, -2), weights, 0)
    zeros = round(float(pattern.removesuffix(" %")) / 100 * weights.size)
    weights.flat[generator.permutation(weights.size)[:zeros]] = 0
    return weights


def _product(shape: str, tokens: int, pattern: str, rounds: int) -> Product:
    generator = np.random.default_rng(0)
    weights = matrix(SHAPES[shape], pattern, generator)
    x = generator.normal(size=(tokens, weights.shape[0])).astype(np.float32)
    csr = scipy.sparse.csr_array(weights.T)
    runs = _runs(weights, csr, x)
    seconds = interleave(runs, rounds)
    stored = csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    return Product(
        shape=shape,
        tokens=tokens,
        pattern=pattern,
        sparsity=1 - csr.nnz / weights.size,
        seconds={form: statistics.median(times) for form, times in seconds.items()},
        bytes={
            "dense": weights.nbytes,
            "masked dense": weights.nbytes + weights.size,
            "BCSR": stored,
            "scipy CSR": stored,
        },
    )


def _runs(weights: np.ndarray, csr: Any, x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Returns a function for each form, once all are seen to compute the same product."""
    # Indices are arguments: XLA would fold constant ones for seconds.
    dense = jax.jit(lambda w, x: x @ w)
    masked = jax.jit(lambda w, mask, x: x @ jnp.where(mask, w, 0))
    sparse = jax.jit(
        lambda data, columns, rows, y: BCSR((data, columns, rows), shape=csr.shape) @ y
    )
    w, mask, device_x = jnp.asarray(weights), jnp.asarray(weights != 0), jnp.asarray(x)
    parts = [jnp.asarray(part) for part in (csr.data, csr.indices, csr.indptr)]
    y = np.ascontiguousarray(x.T)
    device_y = jnp.asarray(y)
    runs: dict[str, Callable[[], Any]] = {
        "dense": lambda: dense(w, device_x),
        "masked dense": lambda: masked(w, mask, device_x),
        "BCSR": lambda: sparse(*parts, device_y),
        "scipy CSR": lambda: csr @ y,
    }
    expected = np.asarray(runs["dense"]())
    for form, run in runs.items():
        result = np.asarray(run())
        result = result.T if form in SPARSE_FORMS else result
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    return runs
