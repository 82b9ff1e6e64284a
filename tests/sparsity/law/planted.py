"""Points drawn from a known law, on a grid like the published T5 one (48 points)."""

import itertools
import pathlib

import numpy as np
import pytest

from sparsity.law.fit import Recipe
from sparsity.law.form import Coefficients, loss
from sparsity.law.points import UNSTRUCTURED, Points

LAW = Coefficients(a_S=30.0, b_S=0.9, c_S=45.0, b_N=0.25, a_D=3.0e8, b_D=0.4, c=0.9)
SIZES = (1e6, 4e6, 1.6e7, 6.4e7)
SPARSITIES = (0.0, 0.5, 0.75, 0.875)
DATA = (1e9, 8e9, 6.4e10)
RECIPE = Recipe(residual="log", delta=0.001, starts=64)

PUBLISHED_POINTS = (
    pathlib.Path(__file__).parents[3].parent / "shared" / "data" / "sparse_scaling_points.csv"
)
needs_published_points = pytest.mark.skipif(
    not PUBLISHED_POINTS.is_file(), reason="the published points are not on this machine"
)


def points(
    law: Coefficients = LAW,
    noise: float = 0.0,
    seed: int = 0,
    data: tuple[float, ...] = DATA,
    worth: dict[str, tuple[float, float]] | None = None,
) -> Points:
    """Returns the grid's points; `worth` adds dense-equivalent (sparsity, multiplier) patterns."""
    rows = [(s, n, d, UNSTRUCTURED, 1.0) for s, n, d in itertools.product(SPARSITIES, SIZES, data)]
    for name, (sparsity, multiplier) in (worth or {}).items():
        rows += [(sparsity, n, d, name, multiplier) for n, d in itertools.product(SIZES, data)]
    sparsity, size, tokens = np.array([row[:3] for row in rows]).T
    pattern = np.array([row[3] for row in rows])
    multiplier = np.array([row[4] for row in rows])
    effective = np.where(pattern == UNSTRUCTURED, sparsity, 0.0)
    exact = loss(law, effective, size * multiplier, tokens)
    drawn = np.random.Generator(np.random.Philox(seed)).normal(size=len(rows))
    return Points(
        name="planted",
        data_unit="tokens",
        sparsity=sparsity,
        size=size,
        data=tokens,
        loss=exact * np.exp(noise * drawn),
        pattern=pattern,
        origin=tuple(f"row {i}" for i in range(len(rows))),
    )


def write_csv(path: pathlib.Path, given: Points) -> pathlib.Path:
    """Writes points as a CSV that a user could have."""
    lines = ["nonzero_params,sparsity,data,val_loss,pattern"]
    columns = (given.size, given.sparsity, given.data, given.loss, given.pattern)
    lines += [
        f"{n!r},{s!r},{d!r},{value!r},{p}"
        for n, s, d, value, p in zip(*(column.tolist() for column in columns), strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path
