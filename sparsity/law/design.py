"""Which run to make next so that a chosen figure becomes surer for a given cost."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.law.accounting import training_flops
from sparsity.law.figures import Figure
from sparsity.law.fit import Fit
from sparsity.law.solve import predict
from sparsity.law.variables import B_D, B_N, B_S, FLOOR, LOG_A, LOG_C_S, LOG_E, to_coefficients

# One standard deviation of a vague prior on the normalised variables: it keeps the information
# matrix invertible where a direction has not been measured at all, and is drowned elsewhere.
_PRIOR_SD = {LOG_A: 3.0, B_S: 2.0, LOG_C_S: 3.0, B_N: 1.0, LOG_E: 3.0, B_D: 1.0, FLOOR: 1.0}
_PATTERN_PRIOR_SD = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run that could be made."""

    # S, N and D of the law.
    sparsity: float
    size: float
    data: float
    # Training FLOPs, 6 N D c_mul(S).
    cost: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Runs to make together, and what they are expected to do to the chosen figure."""

    # In the order in which they help most.
    runs: tuple[Run, ...]
    # Sum of their training FLOPs.
    cost: float
    # Standard deviation of the logarithm of the figure, now and after; for a D-optimal plan, of
    # the geometric mean over all variables.
    spread_before: float
    spread_after: float


def candidate_runs(
    sparsities: np.ndarray, sizes: np.ndarray, data: np.ndarray, accounting: str
) -> list[Run]:
    """Returns every combination as a run with its cost under the accounting."""
    return [
        Run(
            sparsity=float(s),
            size=float(n),
            data=float(d),
            cost=float(training_flops(s, n, d, accounting)),
        )
        for s, n, d in itertools.product(sparsities, sizes, data)
    ]


class Design:
    """The information that the measured points hold, and what further runs would add.

    The law is linearised at the fit: a run at x adds J(x)^T J(x) / sigma^2 to the information I,
    J the gradient of its (log) loss and sigma^2 the mean squared residual of the fit. A figure phi
    then has variance g^T I^-1 g, g the gradient of log phi: c-optimal design. Without a figure the
    determinant of I counts: D-optimal. On the published points this spread is 0.7 to 1 times that
    of the resamples where b_D is identified, and half of it where it barely is.
    """

    def __init__(self, fitted: Fit, figure: Figure | None):
        frame, recipe = fitted.frame, fitted.recipe
        self._fitted = fitted
        axes = (frame.log_size, frame.log_data, frame.density)
        jacobian = self._jacobian(axes, frame.pattern)
        with jax.enable_x64(True):
            predicted = np.asarray(predict(jnp.asarray(fitted.variables), axes, frame.pattern))
        measured = frame.loss
        log = recipe.residual == "log"
        residual = np.log(predicted / measured) if log else predicted - measured
        freedom = max(len(residual) - len(fitted.variables), 1)
        # Exact data would make every run worth infinitely much.
        self._variance = max(float(np.sum(residual**2)) / freedom, 1e-20)
        patterns = [_PATTERN_PRIOR_SD] * frame.pattern.shape[1]
        prior = np.array([_PRIOR_SD[i] for i in range(len(_PRIOR_SD))] + patterns)
        self._information = jacobian.T @ jacobian / self._variance + np.diag(prior**-2.0)
        self._gradient = None if figure is None else self._figure_gradient(figure)

    def spread(self, runs: list[Run]) -> float:
        """Returns the standard deviation of the log figure once these runs are made too."""
        added = self._added(runs).sum(axis=0) if runs else 0.0
        return float(self._spread(self._information + added))

    def single_spreads(self, candidates: list[Run]) -> np.ndarray:
        """Returns the spread after each of the candidates alone."""
        return self._spread(self._information + self._added(candidates))

    def best_plan(self, candidates: list[Run], budget: float, most: int) -> Plan:
        """Returns the best of: one run within the budget, two within half of it each, and so on.

        Runs of one plan are chosen greedily, each for what it adds to those before. The cheapest
        candidate must be within the budget.
        """
        gained = self._added(candidates)
        costs = np.array([run.cost for run in candidates])
        plans = []
        for count in range(1, most + 1):
            affordable = np.flatnonzero(costs <= budget / count)
            if not len(affordable):
                break
            information, chosen = self._information, []
            for _ in range(count):
                best = affordable[np.argmin(self._spread(information + gained[affordable]))]
                information = information + gained[best]
                chosen.append(candidates[best])
            plans.append(
                Plan(
                    runs=tuple(chosen),
                    cost=sum(run.cost for run in chosen),
                    spread_before=float(self._spread(self._information)),
                    spread_after=float(self._spread(information)),
                )
            )
        return min(plans, key=lambda plan: plan.spread_after)

    def _spread(self, information: np.ndarray) -> np.ndarray:
        """Returns the spread for information matrices (..., V, V)."""
        if self._gradient is None:
            return np.exp(-0.5 * np.linalg.slogdet(information)[1] / information.shape[-1])
        solved = np.linalg.solve(information, self._gradient[:, None])[..., 0]
        return np.sqrt(solved @ self._gradient)

    def _added(self, runs: list[Run]) -> np.ndarray:
        """Returns the information (R, V, V) that each run adds."""
        frame = self._fitted.frame
        axes = (
            np.log([run.size for run in runs]) - frame.log_reference_size,
            np.log([run.data for run in runs]) - frame.log_reference_data,
            1.0 - np.array([run.sparsity for run in runs]),
        )
        jacobian = self._jacobian(axes, np.zeros((len(runs), frame.pattern.shape[1])))
        return jacobian[:, :, None] * jacobian[:, None, :] / self._variance

    def _jacobian(self, axes, pattern) -> np.ndarray:
        log = self._fitted.recipe.residual == "log"

        def residual(variables):
            predicted = predict(variables, axes, pattern)
            return jnp.log(predicted) if log else predicted

        with jax.enable_x64(True):
            return np.asarray(jax.jacfwd(residual)(jnp.asarray(self._fitted.variables)))

    def _figure_gradient(self, figure: Figure) -> np.ndarray:
        def log_figure(variables):
            return jnp.log(figure.value(to_coefficients(variables, self._fitted.frame, jnp)))

        with jax.enable_x64(True):
            return np.asarray(jax.grad(log_figure)(jnp.asarray(self._fitted.variables)))
