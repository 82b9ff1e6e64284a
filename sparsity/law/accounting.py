"""What a sparse training run costs when the hardware skips zeros, and when it computes them."""

from models.errors import UserError, did_you_mean
from sparsity.law.form import Numeric

ACCOUNTINGS = ("skipped", "computed")


def training_multiple(sparsity: Numeric, accounting: str) -> Numeric:
    """Returns c_mul(S): training FLOPs of a run ending with N non-zeros are 6 N D c_mul(S).

    Such a run starts from N / (1 - S) dense weights.
    - `computed`: zeros cost as much as weights, c_mul = 1 / (1 - S).
    - `skipped`: dense until 25 % of training, cubic pruning until 75 %, then fixed. The density
      averaged over training is 1/4 + 1/2 (1 - 3/4 S) + 1/4 (1 - S) = 1 - 5/8 S (the cubic's mean is
      3/4 S), so c_mul = (1 - 5/8 S) / (1 - S) = 0.375 / (1 - S) + 0.625.
    Raises UserError for any other accounting.
    """
    if accounting == "computed":
        return 1.0 / (1.0 - sparsity)
    if accounting == "skipped":
        return 0.375 / (1.0 - sparsity) + 0.625
    raise UserError(
        f"accounting {accounting!r}: give one of {', '.join(ACCOUNTINGS)}."
        + did_you_mean(accounting, ACCOUNTINGS)
    )


def training_flops(sparsity: Numeric, size: Numeric, data: Numeric, accounting: str) -> Numeric:
    """Returns 6 N D c_mul(S), what a run ending with N non-zeros costs on D tokens or images."""
    return 6.0 * size * data * training_multiple(sparsity, accounting)
