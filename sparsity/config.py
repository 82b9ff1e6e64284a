"""What to prune, how, and when: the configuration of pruning, readable without jax."""

import dataclasses
import re
from typing import Literal

from models.errors import UserError, did_you_mean

RULES = (
    "none",
    "magnitude",
    "magnitude_ste",
    "saliency",
    "random",
    "static",
    "set",
    "rigl",
)
# These keep the target sparsity from the first step on; the others start dense.
SPARSE_FROM_START = ("static", "set", "rigl")
SCHEDULES = ("cubic", "polynomial", "constant", "one_shot")
DISTRIBUTIONS = ("uniform", "erk", "global")
EMBEDDINGS = ("auto", "same", "dense")
NM_AXES = ("contraction", "output")


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Which weights may be zero together: any, at least M−N of each M, or whole blocks."""

    kind: Literal["unstructured", "n:m", "block"]
    # n:m: (non-zeros kept, group size); block: (rows, columns)
    shape: tuple[int, int] = (1, 1)


UNSTRUCTURED = Pattern("unstructured")


def parse_pattern(text: str) -> Pattern:
    """Reads `unstructured`, `2:4`, `block:4x4`; raises UserError for anything else."""
    if text == "unstructured":
        return UNSTRUCTURED
    if match := re.fullmatch(r"(\d+):(\d+)", text):
        kept, group = int(match[1]), int(match[2])
        if not 1 <= kept < group:
            raise UserError(
                f"pattern={text}: N:M keeps N of every M weights, so it needs 1 <= N < M,"
                f" for example 2:4."
            )
        return Pattern("n:m", (kept, group))
    if match := re.fullmatch(r"block:(\d+)x(\d+)", text):
        rows, columns = int(match[1]), int(match[2])
        if rows * columns < 2:
            raise UserError(f"pattern={text}: a block holds two weights or more, as in block:4x4.")
        return Pattern("block", (rows, columns))
    raise UserError(
        f"pattern={text}: not a sparsity pattern. Patterns are unstructured, N:M (2:4) and"
        f" block:RxC (block:4x4)."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruningConfig:
    """How a network is pruned while it trains; `rule="none"` leaves it dense."""

    # Which weights go: none, magnitude, magnitude_ste, saliency, random, static, set, rigl.
    rule: str = "none"
    # Share of zeros at the end in every pruned tensor (or over all, for distribution="global").
    sparsity: float = 0.0
    # Where zeros may lie: unstructured, N:M such as 2:4, or block:RxC such as block:4x4.
    pattern: str = "unstructured"
    # Groups of N:M run along the contraction axis (what sparse tensor cores need) or the output.
    nm_axis: str = "contraction"
    # How sparsity grows from start to end: cubic, polynomial, constant (all at start, then
    # re-chosen until end) or one_shot (once, at start).
    schedule: str = "cubic"
    # Exponent of schedule="polynomial": sparsity = S·(1 − (1 − t)^power); cubic is power 3.
    power: float = 3.0
    # Share of the budget spent when pruning starts.
    start_fraction: float = 0.25
    # Share of the budget spent when the last mask is chosen and the target is reached.
    end_fraction: float = 0.75
    # Steps between two choices of the masks; the last one falls on the end whatever this is.
    update_every_steps: int = 100
    # Sparsity per tensor: uniform, erk (Erdős–Rényi kernel) or global (one threshold for all).
    distribution: str = "uniform"
    # Share of the kept weights that set and rigl replace at an update.
    drop_fraction: float = 0.3
    # Parameters (regular expressions, searched in the path) that are never pruned, besides all
    # those of fewer than two dimensions per layer.
    exclude: tuple[str, ...] = (
        r"relative_bias",
        r"position",
        r"token_type",
        r"class_token",
        r"norm",
    )
    # Parameters (regular expressions) that count as embeddings.
    embedding: tuple[str, ...] = (r"token_embedding", r"(^|/)logits(/|$)")
    # Embeddings: pruned unstructured at 1 − √(1 − S) (auto), like the rest (same), or dense.
    embedding_sparsity: str = "auto"

    def check(self) -> None:
        """Raises UserError for values that no run could honour."""
        _one_of("rule", self.rule, RULES)
        _one_of("schedule", self.schedule, SCHEDULES)
        _one_of("distribution", self.distribution, DISTRIBUTIONS)
        _one_of("embedding_sparsity", self.embedding_sparsity, EMBEDDINGS)
        _one_of("nm_axis", self.nm_axis, NM_AXES)
        if not 0 <= self.sparsity < 1:
            raise UserError(
                f"sparsity={self.sparsity}: the share of zeros lies in [0, 1), for example 0.75."
            )
        if not 0 <= self.start_fraction <= self.end_fraction <= 1:
            raise UserError(
                f"start_fraction={self.start_fraction}, end_fraction={self.end_fraction}: pruning"
                f" needs 0 <= start <= end <= 1, as shares of the budget."
            )
        if self.update_every_steps < 1:
            raise UserError(
                f"update_every_steps={self.update_every_steps}: masks are chosen every 1 or more"
                f" steps."
            )
        if self.power <= 0:
            raise UserError(
                f"power={self.power}: the polynomial's exponent is above 0 (3 is cubic)."
            )
        if not 0 <= self.drop_fraction <= 1:
            raise UserError(
                f"drop_fraction={self.drop_fraction}: the replaced share of the kept weights lies"
                f" in [0, 1], for example 0.3."
            )
        for expression in (*self.exclude, *self.embedding):
            try:
                re.compile(expression)
            except re.error as error:
                raise UserError(f"{expression!r}: not a regular expression ({error}).") from error
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raises UserError where two fields contradict each other."""
        pattern = parse_pattern(self.pattern)
        if self.rule in SPARSE_FROM_START:
            if self.schedule != "constant":
                raise UserError(
                    f"rule={self.rule}, schedule={self.schedule}: {self.rule} keeps its sparsity"
                    f" from the first step on; set schedule=constant."
                )
            if self.distribution == "global":
                raise UserError(
                    f"rule={self.rule}, distribution=global: masks drawn before training have no"
                    f" global threshold; use uniform or erk."
                )
        if pattern.kind == "n:m" and self.rule != "none":
            kept, group = pattern.shape
            if abs(self.sparsity - (1 - kept / group)) > 1e-9:
                raise UserError(
                    f"pattern={self.pattern}, sparsity={self.sparsity}: {self.pattern} leaves"
                    f" exactly {1 - kept / group:g} zeros; set sparsity={1 - kept / group:g}."
                )
        if pattern.kind != "unstructured" and self.distribution == "global":
            raise UserError(
                f"pattern={self.pattern}, distribution=global: a global threshold is unstructured;"
                f" use uniform."
            )
        if pattern.kind == "n:m" and self.distribution == "erk":
            raise UserError(
                f"pattern={self.pattern}, distribution=erk: N:M fixes the sparsity of every tensor;"
                f" use uniform."
            )


def _one_of(field: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UserError(
            f"{field}={given}: not one of {', '.join(known)}.{did_you_mean(given, known)}"
        )
