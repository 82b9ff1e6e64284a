"""The published coefficients and figures of the sparsity scaling law, with their source.

Source of all of it: Frantar et al., ICLR 2024 (arXiv 2309.08520); the recipe (loss, delta) is that
of the code released with it (google-research/jaxpruner, projects/bigsparse, Apache-2.0).
"""

import dataclasses

from sparsity.law.form import Coefficients

SOURCE = "Frantar et al., ICLR 2024, arXiv 2309.08520"


def _released(
    a: float, b: float, c: float, d: float, e: float, f: float, g: float, data_scale: float
) -> Coefficients:
    """Converts the released fit, (a (1-S)^b + c) N^-d + e D^-f + g with N in millions.

    The paper prints the same numbers to three digits, which is too few to compare objectives.
    """
    return Coefficients(
        a_S=a * 1e6**d, b_S=b, c_S=c * 1e6**d, b_N=d, a_D=e ** (1 / f) * data_scale, b_D=f, c=g
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedLaw:
    """One family's published coefficients and how they were fitted."""

    # What was trained on what.
    title: str
    # The seven coefficients of the released fit, which the paper prints rounded.
    coefficients: Coefficients
    # "raw" or "log": whether the Huber loss sees L or log L.
    residual: str
    # Where the Huber loss turns from square to linear, in units of the residual.
    delta: float
    # The largest number of non-zero weights among the fitted points.
    largest_size: float
    # Headline figures as printed, by name of the figure (see figures.py).
    figures: dict[str, str]
    # What `fit` finds wrong with these coefficients on the study's own points; empty if nothing.
    caution: str


PUBLISHED = {
    "vit_jft": PublishedLaw(
        title="ViT on JFT-4B",
        coefficients=_released(
            1.30485411,
            0.82101251,
            2.07506343,
            0.39222675,
            0.27818217,
            0.88979104,
            4.51669257,
            data_scale=1e9,
        ),
        residual="raw",
        delta=0.01,
        largest_size=42_467_328,
        figures={
            "equivalent_50": "1.6",
            "equivalent_75": "2.16",
            "skipped_50": "2",
            "computed_50": "5",
        },
        caution="",
    ),
    "t5_c4": PublishedLaw(
        title="T5 on C4",
        coefficients=_released(
            0.56778512,
            0.72161276,
            1.52265016,
            0.24513173,
            0.63361517,
            0.20270772,
            0.65074219,
            # A hundred thousand steps of 128 x 512 encoder tokens.
            data_scale=1e5 * 65_536,
        ),
        residual="log",
        delta=0.001,
        largest_size=84_934_656,
        figures={
            "equivalent_50": "1.6",
            "equivalent_75": "2.16",
            "skipped_50": "3",
            "computed_50": "70",
        },
        caution=(
            "these coefficients are not the minimiser on the study's own points (objective 56 % "
            "above it), and those points barely identify b_D: do not quote one number for a "
            "Chinchilla multiple"
        ),
    ),
}

# The finding on N:M patterns exists in words; multipliers of the study are not known to us.
PATTERN_FINDINGS = {
    "2:4": "no worse than unstructured 50 %",
    "1:4": "clearly worse than unstructured 75 %",
    "2:8": "clearly worse than unstructured 75 %",
}
