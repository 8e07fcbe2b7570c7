"""The refitting problem as `fista` and `newton` see it: methods on one parameter matrix."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.features import RowBlocks
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.objective import Objective
from fastpoly.kernels.penalties import FistaStep, fista_update
from fastpoly.objective import Objective as WholeObjective
from fastpoly.problem import Problem
from fastpoly.refit.certificate import duality_gap
from fastpoly.refit.fista import Certificate
from fastpoly.state import Model

Floats = NDArray[np.float64]


class OutputProblem:
    """The convex refit of the output layer.

        sum_i w_i l(y_i, V's_i + b + W'x_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

    with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form. The parameters are the
    rows of P = [V; b; W] (k + 1 + d, m). P has b and W only if there are lower-order terms, which
    are either the objective's linear part or stored as additional activations. The first
    `n_penalized` rows carry the penalty, the others half their `ridge` times their square.

    Activations of different basis vectors differ by orders of magnitude, so steps are taken in the
    metric of their squared norms. The penalty itself is not rescaled.

    Parameters
    ----------
    problem : Problem
    objective : Objective
    n_penalized : int
    small : float
        Tolerances are not relative to anything smaller.
    memory : float
        Bytes that may be stored in addition to the activations.
    """

    def __init__(
        self, problem: Problem, objective: Objective, n_penalized: int, small: float,
        memory: float = 1e9,
    ) -> None:  # fmt: skip
        self.objective, self.small, self.memory = objective, small, memory
        norms = squared_norms(objective.features, objective.linear, objective.w_array)
        self._set(problem, n_penalized, norms)

    def _set(self, problem: Problem, n_penalized: int, norms: Floats) -> None:
        """Set what does not depend on where the rows are; norms (k,) or (k + 1 + d,)."""
        self.problem, self.n_penalized = problem, n_penalized
        self.penalty, self.alpha, self.tau = problem.penalty, problem.alpha, problem.tau
        ridge = np.zeros(len(norms))
        ridge[n_penalized + 1 :] = problem.alpha_linear
        self.ridge = ridge[:, None]
        metric = norms + ridge
        # Scales may differ by many orders of magnitude; only zeros have to be replaced.
        largest = metric.max(initial=0.0)
        self.metric = np.maximum(metric, 1e-30 * largest if largest > 0 else 1.0)
        self.weights = np.zeros(len(metric))
        self.weights[:n_penalized] = 1.0

    def value_grad(self, P: Floats, D: Floats | None = None) -> tuple[float, Floats]:
        value, G = self.objective.value_grad(P, D)
        return value + self.ridge_value(P), G + self.ridge * P

    def size(self, objective: float) -> float:
        """The number to which tolerances are relative."""
        return max(abs(objective), self.small)

    def ridge_value(self, P: Floats) -> float:
        return 0.5 * float((self.ridge * P * P).sum())

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        steps = 1.0 / (L * self.metric)
        if self.tau is None:
            thresholds = self.alpha * steps * self.weights
            return fista_update(self.penalty, Y, G, steps, P_old, P_new, thresholds=thresholds)
        return fista_update(
            self.penalty, Y, G, steps, P_old, P_new, tau=self.tau, weights=self.weights
        )

    def penalty_value(self, P: Floats) -> float:
        """alpha Omega(V), or 0 within the ball."""
        return self.problem.penalty_value(P[: self.n_penalized])

    def certify(self, P: Floats) -> Certificate:
        """F, its gradient, the objective and the duality gap at P."""
        D = np.empty((self.objective.n, self.objective.m))
        value, G = self.value_grad(P, D)
        return self.certificate(P, value, G, D)

    def certificate(self, P: Floats, value: float, G: Floats, D: Floats) -> Certificate:
        """The objective at P and an upper bound on its distance from the minimum."""
        objective, loss = self.objective, self.objective.loss

        def conjugate(c: float) -> float:
            return loss.conjugate(objective.targets, D, c, objective.w_array)

        return self.bounded(P, value, G, conjugate)

    def bounded(
        self, P: Floats, value: float, G: Floats, conjugate: Callable[[float], float]
    ) -> Certificate:
        """The certificate from F, its gradient and the conjugate of the loss."""
        gap = duality_gap(
            self.problem, P, G - self.ridge * P, value - self.ridge_value(P), conjugate,
            self.n_penalized, self.ridge[:, 0], lambda: self.metric,
        )  # fmt: skip
        return Certificate(value, G, value + self.penalty_value(P), gap)


class SummedProblem(OutputProblem):
    """The same refit, with sums over rows that may be anywhere.

    Parameters
    ----------
    whole : Objective
    H : ndarray, (k, d)
    """

    def __init__(self, whole: WholeObjective, H: Floats) -> None:
        self.rows, self.H, self.small = whole.rows, H, whole.small
        self._set(whole.problem, len(H), self.rows.squared_norms(H))

    def model(self, P: Floats) -> Model:
        """The model of the stacked parameters P."""
        k, m = len(self.H), P.shape[1]
        if not self.rows.explicit:
            return Model(self.H, P, np.zeros(m), None)
        return Model(self.H, P[:k], P[k], P[k + 1 :])

    def value_grad(self, P: Floats, D: Floats | None = None) -> tuple[float, Floats]:
        value, *parts = self.rows.value_layers(self.model(P))
        return value + self.ridge_value(P), _stacked(*parts) + self.ridge * P

    def certify(self, P: Floats) -> Certificate:
        """F, its gradient, the objective and the duality gap at P."""
        found = self.rows.gradient(self.model(P))
        G = _stacked(found.V, found.intercept, found.linear) + self.ridge * P
        return self.bounded(P, found.value + self.ridge_value(P), G, found.conjugate)


def squared_norms(features: RowBlocks, linear: LinearTerms | None, w: Floats | None) -> Floats:
    """sum_i w_i a_i^2 for each activation and, with linear terms, the constant and each feature."""
    norms = np.zeros(features.k)
    for S, rows in features.blocks():
        norms += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
    if linear is None:
        return norms
    w = np.ones(features.n) if w is None else w
    return np.concatenate([norms, [w.sum()], linear.squared_column_norms(w)])


def _stacked(V: Floats, intercept: Floats | None, linear: Floats | None) -> Floats:
    return V if linear is None else np.vstack([V, intercept, linear])
