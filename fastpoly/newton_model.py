"""The minimum of Newton's second-order model with the penalty, without touching the n rows.

    minimise  q(P) = <G0, P - P0> + 1/2 <P - P0, B (P - P0)> + alpha Omega(V)   (or Omega(V) <= tau)

B (k, k, m), one block an output, or (k, m, k, m). Block coordinate descent finds the zeros quickly
but is slow where activations are nearly collinear, as those of badly scaled features are: there,
three means of growing cost help each other, sweeps, extrapolation, linear systems.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.fista import fista
from fastpoly.kernels.penalties import Penalty
from fastpoly.kernels.quadratic import RowDescent
from fastpoly.problems import OutputProblem, QuadraticProblem

Floats = NDArray[np.float64]

MAX_SWEEPS = 1000
EXTRAPOLATE = 5
# Rounds of so many sweeps; from the first of these on, sometimes a linear system is solved.
MAX_ROUNDS = 40
SOLVE_FROM = 5
HALVINGS = 10

# B times a matrix, by the number of dimensions of B.
PRODUCT = {3: "ijc,jc->ic", 4: "iejc,jc->ie"}


def direction(problem: OutputProblem, P: Floats, G: Floats, B: Floats, tol: float) -> Floats:
    """The minimiser of the penalised model around P, where the gradient is G."""
    if problem.tau is None and isinstance(problem.penalty, Penalty):
        return minimise_model(problem, P, G, B, tol)
    return fista(QuadraticProblem(problem, P, G, B), P, tol=tol, max_iter=MAX_SWEEPS).P


def minimise_model(problem: OutputProblem, P: Floats, G: Floats, B: Floats, tol: float) -> Floats:
    """The same for the penalised form and a compiled penalty.

    Parameters
    ----------
    problem : OutputProblem
    P, G : ndarray, (k, m)
    B : ndarray, (k, k, m) or (k, m, k, m)
    tol : float
        Accuracy: the share of the first sweep's movement that is left.

    Returns
    -------
    ndarray, (k, m)
    """
    descent = _Descent(problem, P, G, B)
    first = moved = descent.sweep()
    wait = SOLVE_FROM
    for n_round in range(MAX_ROUNDS):
        if moved <= tol * first:
            break
        moved = descent.extrapolate()
        if n_round == wait:
            gained = descent.solve()
            if 0 < gained <= tol * descent.total():
                break
            # A system costs as much as many sweeps: seldom where it is of no use.
            wait += 1 if gained else wait
    # The last sweep makes zero rows exactly zero again.
    descent.sweep()
    return descent.P


def anderson(points: list[Floats]) -> Floats:
    """Weights, which add up to 1, of all points but the first whose last steps cancel best."""
    steps = np.diff(np.array(points).reshape(len(points), -1), axis=0)
    # Of the steps only the ratios matter: squares of tiny ones must not vanish.
    steps /= max(np.abs(steps).max(initial=0.0), 1e-300)
    gram = steps @ steps.T
    gram[np.diag_indices(len(gram))] += 1e-10 * gram.trace() + 1e-300
    weights = np.linalg.solve(gram, np.ones(len(gram)))
    return weights / weights.sum()


class _Descent:
    """A point P of the model with the gradient G of its smooth part, both moved together."""

    def __init__(self, problem: OutputProblem, P0: Floats, G0: Floats, B: Floats) -> None:
        self.problem, self.P0, self.G0, self.B = problem, P0, G0, B
        self.thresholds = problem.alpha * problem.weights
        self.rows = RowDescent(problem.penalty, B)
        self.own = self.rows.curvature
        self.P, self.G = P0.copy(), G0.copy()

    def value(self, P: Floats, G: Floats) -> float:
        """q(P), which the gradients at its ends tell."""
        return 0.5 * float(((self.G0 + G) * (P - self.P0)).sum()) + self.problem.penalty_value(P)

    def total(self) -> float:
        """What was gained since P0."""
        return self.problem.penalty_value(self.P0) - self.value(self.P, self.G)

    def sweep(self) -> float:
        return self.rows.sweep(self.P, self.G, self.thresholds)

    def extrapolate(self) -> float:
        """A few sweeps, then the combination of their points whose sweeps would cancel best."""
        points, gradients, moved = [self.P.copy()], [self.G.copy()], 0.0
        for _ in range(EXTRAPOLATE):
            moved = self.sweep()
            points.append(self.P.copy())
            gradients.append(self.G.copy())
        weights = anderson(points)
        P = np.tensordot(weights, points[1:], 1)
        G = np.tensordot(weights, gradients[1:], 1)
        if self.value(P, G) < self.value(self.P, self.G):
            self.P, self.G = P, G
        return moved

    def solve(self) -> float:
        """Newton's step in the entries that are not zero, where it is one down: the gain."""
        slope = self.G + self.penalty_slope()
        free = (self.P != 0) | (self.thresholds == 0)[:, None]
        free &= self.own[:, None] > 0
        scale = np.sqrt(np.where(self.own > 0, self.own, 1.0))
        if self.B.ndim == 4:
            scales = np.repeat(scale, free.shape[1])
            B = self.B.reshape(free.size, free.size)
            move = solve_masked(B, -slope.ravel(), scales, free.ravel()).reshape(free.shape)
        else:
            move = solve_masked(self.B.transpose(2, 0, 1), -slope.T, scale, free.T).T
        change = np.einsum(PRODUCT[self.B.ndim], self.B, move, optimize=True)
        before, t = self.value(self.P, self.G), 1.0
        for _ in range(HALVINGS):
            P, G = self.P + t * move, self.G + t * change
            gained = before - self.value(P, G)
            if gained > 0:
                self.P, self.G = P, G
                return gained
            t *= 0.5
        return 0.0

    def penalty_slope(self) -> Floats:
        """The gradient of the penalty, of all possible ones that of the proximal step."""
        slope = np.zeros_like(self.P)
        rows = (self.thresholds > 0) & (self.own > 0)
        own = self.own[rows, None]
        Z = self.P[rows] - self.G[rows] / own
        prox = self.problem.penalty.prox
        slope[rows] = own * (Z - prox(Z, 1.0, self.thresholds[rows] / own[:, 0]))
        return slope


def solve_masked(B: Floats, b: Floats, scale: Floats, free: NDArray[np.bool_]) -> Floats:
    """B^-1 b in the free entries, 0 in the others, for all of a stack of systems.

    B has a diagonal of about scale^2: rows differ by many orders of magnitude.
    """
    among = free[..., :, None] & free[..., None, :]
    B = np.where(among, B / scale / scale[:, None], np.eye(len(scale)))
    try:
        return np.linalg.solve(B, np.where(free, b / scale, 0.0)[..., None])[..., 0] / scale
    except np.linalg.LinAlgError:
        return np.zeros_like(b)
