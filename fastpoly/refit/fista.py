"""Accelerated proximal gradient in a row-diagonal metric, for any problem with a few methods.

    minimize  F(P) + R(P)        F smooth, R simple (a penalty, or the indicator of a ball)

Each step is  P+ = argmin_U <G, U> + L/2 |U - Y|_M^2 + R(U)  at the extrapolated point Y, where M is
the problem's row-diagonal metric and G the gradient of F at Y. The constant L starts from an
estimate of the curvature along the first step, follows the curvature seen between successive
points, and may shrink again. The momentum restarts when it points uphill. Each iteration is one
pass over the data. The result is a prox point, so zero rows are exactly zero.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import FistaStep

Floats = NDArray[np.float64]

# Iterations between two certificates, which measure progress and cost about one iteration each.
PATIENCE = 10
# Factor per iteration by which L falls where the curvature seen is lower. With a faster fall, L is
# soon below the curvature, and the objective rises.
SHRINK = 0.998


class Certificate(NamedTuple):
    """F and its gradient at a point, the objective F + R, and an upper bound on its error."""

    value: float
    G: Floats
    objective: float
    gap: float


class Problem(Protocol):
    """The problem that `fista` solves."""

    metric: Floats

    def value_grad(self, P: Floats) -> tuple[float, Floats]:
        """F and its gradient."""

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        """Write the proximal step from Y to P_new; return the sums of `fista_update`."""

    def size(self, objective: float) -> float:
        """The number to which tolerances are relative at this objective."""

    def certify(self, P: Floats) -> Certificate:
        """F, its gradient, the objective and a bound on its distance from the minimum."""


class Solution(NamedTuple):
    """A point with its certificate, recomputed at that point.

    Attributes
    ----------
    P : ndarray
    objective : float
    gap : float
        Upper bound on objective - minimum.
    value : float
        The smooth part F.
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


def metric_norm(problem: Problem, D: Floats) -> float:
    """|D|_M^2 = sum_r M_r |d_r|^2."""
    return float(np.einsum("ij,ij,i->", D, D, problem.metric))


def first_curvature(problem: Problem, P: Floats, G: Floats) -> float:
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


def fista(problem: Problem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0) -> Solution:
    """Minimize from P until the certified gap is at most tol times the objective.

    Parameters
    ----------
    problem : Problem
    P : ndarray, (k, m)
    tol : float
    max_iter, at_least : int
        Largest and smallest number of iterations.

    Returns
    -------
    Solution
        The best point at which the certificate was computed.
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
        if n_iter % PATIENCE == 0 or n_iter == max_iter or sums.quadratic == 0:
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
