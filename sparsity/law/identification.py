"""Says in plain words which coefficients the points barely identify, and what hangs on them."""

import dataclasses

import numpy as np

from sparsity.law.estimate import short
from sparsity.law.figures import FIGURES
from sparsity.law.form import Coefficients, equivalent_size
from sparsity.law.points import Points
from sparsity.law.profile import Profile

# A coefficient is barely identified when its flat range spans more than this factor.
_WIDE = 2.0
# A figure hangs on a coefficient when it changes by more than this factor over the flat range.
_MOVED = 1.5
# A fitted multiplier this close to 1 lies at the edge of what the law can say.
_EDGE = 0.01


def at_edge(points: Points, coefficients: Coefficients) -> list[str]:
    """Returns a warning where the law cannot say how little a sparse weight is worth.

    With positive coefficients the form values a non-zero weight at no less than a dense one. Where
    sparse runs are worse than dense ones of as many non-zeros, every fit and every resample ends at
    1, with an interval of no width.
    """
    most = float(np.max(points.sparsity))
    if equivalent_size(coefficients, most) > 1 + _EDGE:
        return []
    return [
        "a non-zero weight comes out worth 1.00 dense ones, the least that the form can say: "
        "sparse runs are here no better, and perhaps worse, than dense ones of as many non-zeros. "
        "That 1.00, its interval and what is built on it are bounds, not estimates."
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weakness:
    """A coefficient that the points barely identify."""

    # Which one, and the range over which the fit is as good within the given fraction.
    coefficient: str
    low: float
    high: float
    # Figures that move with it: name -> (lowest, highest value over that range).
    figures: dict[str, tuple[float, float]]


def weaknesses(found: list[Profile]) -> list[Weakness]:
    """Returns the barely identified coefficients with the derived figures that hang on them."""
    weak = []
    for profile in found:
        is_open = profile.open_low or profile.open_high
        if not is_open and profile.low > 0 and profile.high / profile.low <= _WIDE:
            continue
        values = {name: figure.value(profile.coefficients) for name, figure in FIGURES.items()}
        moved = {
            name: (float(np.min(value)), float(np.max(value)))
            for name, value in values.items()
            if np.max(value) > _MOVED * np.min(value)
        }
        weak.append(
            Weakness(coefficient=profile.name, low=profile.low, high=profile.high, figures=moved)
        )
    return weak


def explain(weak: list[Weakness], flat: float) -> list[str]:
    """Returns the warnings: the flat ranges, and the figures not to be quoted as one number."""
    if not weak:
        return []
    ranges = ", ".join(f"{w.coefficient} ({short(w.low)} to {short(w.high)})" for w in weak)
    told = [
        f"barely identified: {ranges}. Anywhere in such a range, the other coefficients following, "
        f"the fit is at most {100 * flat:g} % worse."
    ]
    moves = []
    for name, figure in FIGURES.items():
        ends = [w.figures[name] for w in weak if name in w.figures]
        if ends:
            low, high = min(low for low, _ in ends), max(high for _, high in ends)
            moves.append(f"{figure.title}: {short(low)} to {short(high)}")
    if moves:
        told.append(f"on these hang {'; '.join(moves)}. Do not quote one number for them.")
    return told
