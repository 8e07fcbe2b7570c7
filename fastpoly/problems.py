"""The refitting problems as `fista` and `newton` see them: verbs on one parameter matrix."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.objective import Objective
from fastpoly.kernels.penalties import FistaStep, fista_update

Floats = NDArray[np.float64]


def squared_column_norms(objective: Objective) -> Floats:
    """sum_i w_i s_ir^2 for every activation, a block of rows at a time: the metric of V."""
    w = objective.w_array
    norms = np.zeros(objective.k)
    for S, rows in objective.features.blocks():
        norms += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
    return norms


class OutputProblem:
    """The convex refit of the output layer.

        sum_i w_i l(y_i, V's_i + b + W'x_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

    with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form. The parameters are the
    rows of P = [V; b; W] (k + 1 + d, m), b and W only where the objective has a linear part.
    `free` rows at the end of V carry no penalty (and `ridge` of them the ridge), for lower-order
    terms that are stored as activations.

    Activations of different basis vectors differ by orders of magnitude, so steps are taken in the
    metric of their squared norms; the penalty is the one stated, without rescaling.
    """

    def __init__(
        self,
        objective: Objective,
        penalty: Any,
        alpha: float | None,
        tau: float | None,
        ridge: Floats,
        n_penalised: int,
        metric: Floats,
    ) -> None:
        self.objective = objective
        self.penalty = penalty
        self.alpha = alpha
        self.tau = tau
        self.ridge = ridge[:, None]
        self.n_penalised = n_penalised
        positive = metric[metric > 0]
        self.metric = np.maximum(metric, 1e-12 * positive.max() if positive.size else 1.0)
        self.weights = np.zeros(len(metric))
        self.weights[:n_penalised] = 1.0

    def value_grad(self, P: Floats, D: Floats | None = None) -> tuple[float, Floats]:
        value, G = self.objective.value_grad(P, D)
        return value + self.ridge_value(P), G + self.ridge * P

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
        if self.tau is not None:
            return 0.0
        return self.alpha * self.penalty.value(P[: self.n_penalised])

    def certificate(self, P: Floats, value: float, G: Floats) -> tuple[float, float]:
        """The objective at P and an upper bound on its distance from the minimum.

        By convexity F(P) - F(P*) <= <G, P - P*>. Penalised: with the loss at least 0,
        alpha Omega(V*) <= objective, so the unknown part <-G, V*> - alpha Omega(V*) is at most
        (Omega*(G) / alpha - 1) objective. Constrained: at most tau Omega*(G). Rows with a ridge a
        add |g|^2 / (2 a). Rows that nothing bounds count as if the optimum were no farther than
        1 + |P| in the metric.
        """
        k = self.n_penalised
        penalty = self.penalty_value(P)
        objective = value + penalty
        inner = float((G[:k] * P[:k]).sum())
        dual = self.penalty.dual_norm(G[:k]) if k else 0.0
        if self.tau is not None:
            gap = inner + self.tau * dual
        elif self.alpha > 0:
            gap = inner + penalty + max(0.0, dual / self.alpha - 1) * objective
        else:
            gap = self._unbounded(P[:k], G[:k], self.metric[:k])
        ridge = self.ridge[k:, 0]
        firm = ridge > 0
        slack, loose = G[k:][firm], G[k:][~firm]
        gap += float((slack * slack / (2 * ridge[firm, None])).sum())
        gap += self._unbounded(P[k:][~firm], loose, self.metric[k:][~firm])
        return objective, max(gap, 0.0)

    @staticmethod
    def _unbounded(P: Floats, G: Floats, metric: Floats) -> float:
        if not G.size:
            return 0.0
        size = 1 + np.sqrt(float((P * P * metric[:, None]).sum()))
        return size * np.sqrt(float((G * G / metric[:, None]).sum()))


class QuadraticProblem:
    """The model of an OutputProblem around P0, for the constrained Newton step.

    <G0, P - P0> + 1/2 sum_c (P - P0)_:c' B_c (P - P0)_:c,  B (m, k, k)
    """

    def __init__(self, problem: OutputProblem, P0: Floats, G0: Floats, B: Floats) -> None:
        self.problem, self.P0, self.G0, self.B = problem, P0, G0, B
        self.metric = np.maximum(B.diagonal(axis1=1, axis2=2).max(axis=0), 1e-300)

    def value_grad(self, P: Floats) -> tuple[float, Floats]:
        move = P - self.P0
        slope = np.matmul(self.B, move.T[:, :, None])[:, :, 0].T
        return float(((self.G0 + 0.5 * slope) * move).sum()), self.G0 + slope

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        steps = 1.0 / (L * self.metric)
        problem = self.problem
        return fista_update(
            problem.penalty, Y, G, steps, P_old, P_new, tau=problem.tau, weights=problem.weights
        )

    def certificate(self, P: Floats, value: float, G: Floats) -> tuple[float, float]:
        k = self.problem.n_penalised
        dual = self.problem.penalty.dual_norm(G[:k]) if k else 0.0
        gap = float((G * P).sum()) + self.problem.tau * dual
        return value, max(gap, 0.0)
