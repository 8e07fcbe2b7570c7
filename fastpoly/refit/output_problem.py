"""The refitting problems as `fista` and `newton` see them: verbs on one parameter matrix."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.objective import Objective
from fastpoly.kernels.penalties import FistaStep, fista_update
from fastpoly.refit.fista import Certificate

Floats = NDArray[np.float64]


def squared_column_norms(objective: Objective) -> Floats:
    """sum_i w_i a_ir^2 for every row r of the parameters, where a is what it is multiplied by."""
    w, linear, k = objective.w_array, objective.linear, objective.k
    norms = np.zeros(objective.n_rows)
    for S, rows in objective.features.blocks():
        norms[:k] += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
    if linear is not None:
        w = np.ones(objective.n) if w is None else w
        norms[k] = w.sum()
        norms[k + 1 :] = linear.squared_column_norms(w)
    return norms


class OutputProblem:
    """The convex refit of the output layer.

        sum_i w_i l(y_i, V's_i + b + W'x_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

    with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form. The parameters are the
    rows of P = [V; b; W] (k + 1 + d, m), b and W only where there are lower-order terms, whether
    these are the objective's linear part or stored as activations of their own. The first
    `n_penalised` rows carry the penalty, the others half their `ridge` times their square.

    Activations of different basis vectors differ by orders of magnitude, so steps are taken in the
    metric of their squared norms; the penalty is the one stated, without rescaling.

    Tolerances are relative to the objective, or to `small` where it is below that: on separable
    data without penalty it falls for ever. `memory` bounds, in bytes, what is stored beside the
    activations.
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
        small: float = 0.0,
        memory: float = 1e9,
    ) -> None:
        self.objective = objective
        self.penalty = penalty
        self.alpha = alpha
        self.tau = tau
        self.ridge = ridge[:, None]
        self.n_penalised = n_penalised
        self.small = small
        self.memory = memory
        # Scales may differ by many orders; only what is zero needs a stand-in.
        largest = metric.max(initial=0.0)
        self.metric = np.maximum(metric, 1e-30 * largest if largest > 0 else 1.0)
        self.weights = np.zeros(len(metric))
        self.weights[:n_penalised] = 1.0

    def value_grad(self, P: Floats, D: Floats | None = None) -> tuple[float, Floats]:
        value, G = self.objective.value_grad(P, D)
        return value + self.ridge_value(P), G + self.ridge * P

    def size(self, objective: float) -> float:
        """What tolerances are relative to."""
        return max(abs(objective), self.small)

    def ridge_value(self, P: Floats) -> float:
        return 0.5 * float((self.ridge * P * P).sum())

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        return self.prox_step(Y, G, 1.0 / (L * self.metric), P_old, P_new)

    def prox_step(
        self, Y: Floats, G: Floats, steps: Floats, P_old: Floats, P_new: Floats
    ) -> FistaStep:
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

    def certify(self, P: Floats) -> Certificate:
        """F, its gradient, the objective and the duality gap at P."""
        D = np.empty((self.objective.n, self.objective.m))
        value, G = self.value_grad(P, D)
        return self.certificate(P, value, G, D)

    def certificate(self, P: Floats, value: float, G: Floats, D: Floats) -> Certificate:
        """The objective at P and an upper bound on its distance from the minimum.

        For any scale c in 0..1 the loss is at least <c D, O> - l*(c D), which bounds the minimum
        from below once the terms in the unknown optimum P* are: c is chosen such that
        c <G, V*> + alpha Omega(V*) >= 0 (penalised), or c = 1 and <G, V*> >= -tau Omega*(G).
        Rows with a ridge a leave -c^2 |g|^2 / (2 a). Rows that nothing bounds count as if the
        optimum were no farther than 1 + |P| in the metric. A loss without a conjugate uses that
        l* is convex and l*(0) <= 0 where l >= 0: l*(c D) <= c l*(D) = c (<D, O> - loss).
        """
        k, ridge = self.n_penalised, self.ridge
        ridge_value, penalty = self.ridge_value(P), self.penalty_value(P)
        loss, raw = value - ridge_value, G - ridge * P
        dual = self.penalty.dual_norm(raw[:k]) if k else 0.0
        c = 1.0 if self.tau is not None or dual <= self.alpha else self.alpha / dual
        if self.alpha == 0:
            c = 1.0
        conjugate = self._conjugate(D, c)
        if not np.isfinite(conjugate):
            conjugate = c * (float((raw * P).sum()) - loss)
        gap = value + penalty + conjugate + (0.0 if self.tau is None else self.tau * dual)
        free = ridge[:, 0] == 0
        free[:k] = self.alpha == 0
        firm = ridge[:, 0] > 0
        gap += c**2 * float((raw[firm] ** 2 / (2 * ridge[firm])).sum())
        if free.any():
            M, g, p = self.metric[free, None], raw[free], P[free]
            reach = 1 + np.sqrt(float((M * p * p).sum()))
            gap += c * (reach * np.sqrt(float((g * g / M).sum())) - float((g * p).sum()))
        return Certificate(value, G, value + penalty, max(gap, 0.0))

    def _conjugate(self, D: Floats, c: float) -> float:
        objective = self.objective
        if not hasattr(objective.loss, "conjugate"):
            return np.nan
        return objective.loss.conjugate(objective.targets, D, c, objective.w_array)


class QuadraticProblem:
    """The model of an OutputProblem around P0, for Newton steps without a kernel of their own.

    <G0, P - P0> + 1/2 <P - P0, B (P - P0)> + R(P) - R(P0),  B (k, k, m) or (k, m, k, m)
    """

    def __init__(self, problem: OutputProblem, P0: Floats, G0: Floats, B: Floats) -> None:
        self.problem, self.P0, self.G0, self.B = problem, P0, G0, B
        self.before = problem.penalty_value(P0)
        rows = np.arange(len(P0))
        largest = B[rows, rows] if B.ndim == 3 else B[rows, :, rows, :]
        largest = largest.reshape(len(P0), -1).max(axis=1, initial=0.0)
        self.metric = np.maximum(largest, 1e-30 * largest.max(initial=1e-270))

    def value_grad(self, P: Floats) -> tuple[float, Floats]:
        move = P - self.P0
        product = "iejc,jc->ie" if self.B.ndim == 4 else "ijc,jc->ic"
        slope = np.einsum(product, self.B, move, optimize=True)
        return float(((self.G0 + 0.5 * slope) * move).sum()), self.G0 + slope

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        return self.problem.prox_step(Y, G, 1.0 / (L * self.metric), P_old, P_new)

    def size(self, objective: float) -> float:
        return abs(objective)

    def certify(self, P: Floats) -> Certificate:
        """As for any convex F: F(P) - F(U) <= <G, P - U>.

        The gap is the most that this can be over the ball, or over Omega(U) <= 2 Omega(P) + 1 in
        the penalised form, and over rows without penalty as far from 0 as 1 + |P|.
        """
        problem, k = self.problem, self.problem.n_penalised
        value, G = self.value_grad(P)
        dual = problem.penalty.dual_norm(G[:k]) if k else 0.0
        gap = float((G * P).sum())
        if problem.tau is not None:
            gap += problem.tau * dual
        elif k:
            omega = problem.penalty.value(P[:k])
            gap += problem.alpha * omega + max(dual - problem.alpha, 0.0) * (2 * omega + 1)
        if k < len(P):
            M, g, p = self.metric[k:, None], G[k:], P[k:]
            reach = 1 + np.sqrt(float((M * p * p).sum()))
            gap += reach * np.sqrt(float((g * g / M).sum()))
        objective = value + problem.penalty_value(P) - self.before
        return Certificate(value, G, objective, max(gap, 0.0))
