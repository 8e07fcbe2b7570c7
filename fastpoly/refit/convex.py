"""The refit of the output layer as a convex problem, its duality gap, and FISTA.

    sum_i w_i l(y_i, V's_i + b + W'x_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form. The parameters are the rows
of P = [V; b; W] (k + 1 + d, m), or of P = V where the model has no lower-order terms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import FistaStep, fista_update
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.rows import Rows
from fastpoly.rows.rows import Gradient
from fastpoly.state import Model

Floats = NDArray[np.float64]

# Iterations of FISTA between two certificates, which cost about one iteration each.
CERTIFY_EVERY = 10
# Factor per iteration by which L falls where the curvature seen is lower. With a faster fall, L is
# soon below the curvature, and the objective rises.
SHRINK = 0.998


class Certificate(NamedTuple):
    """The smooth part F with its gradient at a point, the objective, and a bound on its error."""

    value: float
    G: Floats
    objective: float
    gap: float


class Solution(NamedTuple):
    """A point with its certificate, recomputed at that point.

    Attributes
    ----------
    P : ndarray
    objective : float
    gap : float
        Upper bound on objective - minimum.
    value : float
        The smooth part F: loss and ridge.
    G : ndarray
        Gradient of F at P.
    n_iter : int
    converged : bool
    """

    P: Floats
    objective: float
    gap: float
    value: float
    G: Floats
    n_iter: int
    converged: bool


class OutputProblem:
    """The convex refit: methods on the parameter matrix P.

    Activations of different basis vectors differ by orders of magnitude, so steps are taken in the
    metric of their squared norms. The penalty itself is not rescaled.

    Parameters
    ----------
    problem : Problem
    rows : Rows
        The rows of the fit, or rows Z = [S | 1 | X] (n, len(P)) with stored activations S.
    H : ndarray, (k, d), or None
        The basis vectors; None for stored activations.
    k : int
        The number of rows of P with the penalty; the others have the ridge.
    small : float
        Tolerances are not relative to anything smaller.
    memory : float
        Bytes that may be stored in addition to the activations.
    """

    def __init__(
        self, problem: Problem, rows: Rows, H: Floats | None, k: int, small: float,
        memory: float = 1e9,
    ) -> None:  # fmt: skip
        self.problem, self.rows, self.H, self.k = problem, rows, H, k
        self.small, self.memory = small, memory
        none = np.zeros((0, rows.n_features))
        norms = rows.squared_norms(none if H is None else H)
        norms = norms[1:] if H is None else norms  # stored rows have no other intercept
        ridge = np.zeros(len(norms))
        ridge[k + 1 :] = problem.alpha_linear
        self.ridge = ridge[:, None]
        metric = norms + ridge
        # Scales may differ by many orders of magnitude; only zeros have to be replaced.
        largest = metric.max(initial=0.0)
        self.metric = np.maximum(metric, 1e-30 * largest if largest > 0 else 1.0)
        self.weights = np.zeros(len(metric))
        self.weights[:k] = 1.0

    @property
    def Z(self) -> Floats:
        """The stored rows."""
        return self.rows.block.design.matrix.array

    @property
    def targets(self) -> tuple[Floats, Floats | None]:
        """The targets (n, 1 or m) and weights of rows in memory."""
        block = self.rows.block
        return block.objective.targets, block.w

    def model(self, P: Floats) -> Model:
        """The model of the parameters P; stored activations are the features of a linear one."""
        zeros = np.zeros(P.shape[1])
        if self.H is None:
            return Model(np.zeros((0, len(P))), P[:0], zeros, P)
        if not self.rows.explicit:
            return Model(self.H, P, zeros, None)
        return Model(self.H, P[: self.k], P[self.k], P[self.k + 1 :])

    def stacked(self, V: Floats, intercept: Floats | None, linear: Floats | None) -> Floats:
        """Gradients in the parts of the model, in the order of P."""
        if self.H is None:
            return linear
        return V if linear is None else np.vstack([V, intercept, linear])

    def value_grad(self, P: Floats) -> tuple[float, Floats]:
        """The smooth part F, loss and ridge, and its gradient."""
        value, *parts = self.rows.value_layers(self.model(P))
        return value + self.ridge_value(P), self.stacked(*parts) + self.ridge * P

    def size(self, objective: float) -> float:
        """The number to which tolerances are relative."""
        return max(abs(objective), self.small)

    def ridge_value(self, P: Floats) -> float:
        return 0.5 * float((self.ridge * P * P).sum())

    def penalty_value(self, P: Floats) -> float:
        """alpha Omega(V), or 0 within the ball."""
        return self.problem.penalty_value(P[: self.k])

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        """Write the proximal step from Y to P_new; return the sums of `fista_update`."""
        steps, problem = 1.0 / (L * self.metric), self.problem
        how: dict[str, Any] = {"tau": problem.tau, "weights": self.weights}
        if problem.tau is None:
            how = {"thresholds": problem.alpha * steps * self.weights}
        return fista_update(problem.penalty, Y, G, steps, P_old, P_new, **how)

    def certify(self, P: Floats) -> Certificate:
        """F, its gradient, the objective and the duality gap at P; infinite where F overflows."""
        try:
            found = self.rows.gradient(self.model(P))
        except ValueError:
            return Certificate(np.inf, np.full(P.shape, np.nan), np.inf, np.inf)
        G = self.stacked(found.V, found.intercept, found.linear)
        return self.certificate(P, found.value, G, found.conjugate)

    def certificate(
        self, P: Floats, loss: float, G: Floats, conjugate: Callable[[float], float]
    ) -> Certificate:
        """The certificate from the loss, its gradient and its conjugate."""
        gap = duality_gap(
            self.problem, P, G, loss, conjugate, self.k, self.ridge[:, 0], lambda: self.metric
        )
        value = loss + self.ridge_value(P)
        return Certificate(value, G + self.ridge * P, value + self.penalty_value(P), gap)


def duality_gap(
    problem: Problem,
    P: Floats,
    G: Floats,
    loss: float,
    conjugate: Callable[[float], float],
    k: int,
    ridge: Floats,
    metric: Callable[[], Floats],
) -> float:
    """Upper bound on the objective at P minus the minimum.

    For any scale c in 0..1 the loss is at least <c D, O> - l*(c D), which bounds the minimum from
    below once the terms in the unknown optimum P* are bounded: c is chosen such that
    c <G, V*> + alpha Omega(V*) >= 0 (penalized), or c = 1 and <G, V*> >= -tau Omega*(G). Rows with
    a ridge a contribute -c^2 |g|^2 / (2 a). Rows that nothing bounds count as if the optimum were
    no farther than 1 + |P| in the metric. For a loss that does not define its conjugate, l* is
    convex and l*(0) <= 0 where l >= 0, so l*(c D) <= c l*(D) = c (<D, O> - loss).

    Parameters
    ----------
    problem : Problem
    P, G : ndarray, (p, m)
        Parameters, and the gradient of the loss without ridge terms.
    loss : float
    conjugate : callable
        c -> sum_i w_i l*(c d_i / w_i), NaN where it is not known.
    k : int
        Number of rows of P with the penalty.
    ridge : ndarray, (p,)
        Ridge penalty of the other rows.
    metric : callable
        () -> squared norms (p,) of the columns that the rows of P are multiplied by.
    """
    penalty, alpha, tau = problem.penalty, problem.alpha, problem.tau
    dual = float(penalty.dual_norm(G[:k])) if k else 0.0
    c = 1.0 if tau is not None or dual <= alpha or alpha == 0 else alpha / dual
    bound = conjugate(c)
    if not np.isfinite(bound):
        bound = c * (float(np.vdot(G, P)) - loss)
    gap = loss + 0.5 * float(ridge @ (P * P).sum(axis=1)) + bound
    gap += problem.penalty_value(P[:k]) if tau is None else tau * dual
    ridged = ridge > 0
    if ridged.any():
        gap += c**2 * float(((G[ridged] ** 2).sum(axis=1) / (2 * ridge[ridged])).sum())
    free = ~ridged
    free[:k] = alpha == 0
    if free.any():
        M, g, p = metric()[free, None], G[free], P[free]
        radius = 1 + np.sqrt(float((M * p * p).sum()))
        gap += c * (radius * np.sqrt(float((g * g / M).sum())) - float(np.vdot(g, p)))
    return max(gap, 0.0)


def refit_gap(objective: Objective, model: Model, gradient: Gradient) -> float:
    """The duality gap of a model among those with the same basis vectors."""
    k, d = model.H.shape
    P, G, ridge = model.V, gradient.V, np.zeros(k)
    if objective.explicit:
        P = np.vstack([P, model.intercept, model.linear])
        G = np.vstack([G, gradient.intercept, gradient.linear])
        ridge = np.concatenate([ridge, [0.0], np.full(d, objective.problem.alpha_linear)])
    return duality_gap(
        objective.problem, P, G, gradient.value, gradient.conjugate, k, ridge,
        lambda: objective.rows.squared_norms(model.H) + ridge,
    )  # fmt: skip


def fista(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimize from P until the certified gap is at most tol times the objective.

    Each step is  P+ = argmin_U <G, U> + L/2 |U - Y|_M^2 + R(U)  at the extrapolated point Y, where
    M is the problem's row-diagonal metric, G the gradient at Y, and R the penalty or the ball. The
    constant L starts from an estimate of the curvature along the first step, follows the curvature
    seen between successive points, and may shrink again. The momentum restarts when it points
    uphill. Each iteration is one pass over the data. The result is the best prox point at which the
    certificate was computed, so zero rows are exactly zero.

    Parameters
    ----------
    problem : OutputProblem
    P : ndarray, (p, m)
    tol : float
    max_iter, at_least : int
        Largest and smallest number of iterations.
    """
    value, G, objective, gap = problem.certify(P)
    best = Solution(P, objective, gap, value, G, 0, gap <= tol * problem.size(objective))
    if (best.converged and not at_least) or max_iter == 0 or not P.size:
        return best
    L = first_curvature(problem, P, G)
    Y, P_old, momentum = P, P, 1.0
    for n_iter in range(1, max_iter + 1):
        P = np.empty_like(Y)
        sums = problem.step(Y, G, L, P_old, P)
        if not np.isfinite(sums.quadratic):
            L, Y, P_old, momentum = 10 * L, best.P, best.P, 1.0
            G = best.G
            continue
        if n_iter % CERTIFY_EVERY == 0 or n_iter == max_iter or sums.quadratic == 0:
            value, G_P, objective, gap = problem.certify(P)
            if objective <= best.objective:
                done = gap <= tol * problem.size(objective)
                best = Solution(P, objective, gap, value, G_P, n_iter, done)
            else:
                # The bound on the minimum from here also holds for the better point.
                gap = max(gap - (objective - best.objective), 0.0)
                if gap < best.gap:
                    done = gap <= tol * problem.size(best.objective)
                    best = best._replace(gap=gap, converged=done)
            if (best.converged and n_iter >= at_least) or sums.quadratic == 0:
                break
            if objective > best.objective + tol * problem.size(best.objective):
                # The step was too long: back to the best point, with shorter steps, no momentum.
                L, Y, P_old, momentum, G = 2 * L, best.P, best.P, 1.0, best.G
                continue
        if sums.restart > 0:
            momentum = 1.0
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        Y_next = P + (momentum - 1) / next_momentum * (P - P_old)
        _, G_next = problem.value_grad(Y_next)
        moved = metric_norm(problem, Y_next - Y)
        if moved > 0:
            seen = float(((G_next - G) * (Y_next - Y)).sum()) / moved
            L = 1.1 * seen if seen > L else max(seen, SHRINK * L)
        Y, G, P_old, momentum = Y_next, G_next, P, next_momentum
    return best._replace(n_iter=n_iter)


def metric_norm(problem: OutputProblem, D: Floats) -> float:
    """|D|_M^2 = sum_r M_r |d_r|^2."""
    return float(np.einsum("ij,ij,i->", D, D, problem.metric))


def first_curvature(problem: OutputProblem, P: Floats, G: Floats) -> float:
    """Curvature of F along the scaled gradient at P, the first guess of L."""
    direction = G / problem.metric[:, None]
    length = metric_norm(problem, direction)
    if length == 0:
        return 1.0
    # The step is short compared to the size of P, so that it measures the curvature at P.
    t = 1e-3 * (1 + np.sqrt(metric_norm(problem, P))) / np.sqrt(length)
    _, G_there = problem.value_grad(P - t * direction)
    curvature = float(((G - G_there) * direction).sum()) / (t * length)
    return curvature if np.isfinite(curvature) and curvature > 0 else 1.0
