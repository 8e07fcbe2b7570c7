"""The minimum of Newton's second-order model with the penalty, without touching the n rows.

    minimise  q(P) = <G0, P - P0> + 1/2 <P - P0, B (P - P0)> + alpha Omega(V)   (or Omega(V) <= tau)

B (k, k, m), one block an output, or (k, m, k, m). Block coordinate descent finds the zeros quickly
but is slow where activations are nearly collinear, as those of badly scaled features are: there,
three means of growing cost help each other, sweeps, extrapolation, linear systems.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import L1, Penalty
from fastpoly.kernels.quadratic import RowDescent
from fastpoly.refit.fista import fista
from fastpoly.refit.output_problem import OutputProblem, QuadraticProblem

Floats = NDArray[np.float64]

MAX_SWEEPS = 1000
EXTRAPOLATE = 5
# Rounds of so many sweeps; from the first of these on, sometimes a linear system is solved. Where
# a rough minimum is enough, sweeps alone mostly find it.
MAX_ROUNDS = 40
SOLVE_FROM = 1
SOLVE_LATE = 3
PRECISE = 5e-3
# Pieces of a step between kinks of the penalty: so many, while the last gains this share of all.
PIECES = 20
PIECE = 1e-2
MAX_SOLVED = 40  # systems in all

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
    wait = SOLVE_FROM if tol <= PRECISE else SOLVE_LATE
    for n_round in range(MAX_ROUNDS):
        if moved <= tol * first or descent.n_solved >= MAX_SOLVED:
            break
        if n_round < wait or not descent.solvable():
            moved = descent.extrapolate()
            continue
        gained, whole = descent.solve()
        moved = descent.sweep()
        if whole and 0 < gained <= tol * descent.total():
            break
        if gained <= tol * descent.total():
            # A system costs as much as many sweeps: seldom where it is of no use.
            wait = 2 * n_round + 2
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
        # Of one output every norm is a multiple of |v|.
        self.faces = problem.penalty if P0.shape[1] > 1 else L1()
        self.own = self.rows.curvature
        self.P, self.G = P0.copy(), G0.copy()
        self.n_solved = 0

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

    def solve(self) -> tuple[float, bool]:
        """Newton's steps in the entries that are not zero: the gain, and if nothing was in the way.

        A step ends where the penalty has a kink: there one entry less is free, or one more tied.
        """
        total, whole = 0.0, False
        for _ in range(PIECES):
            move = self.newton_step()
            self.n_solved += 1
            rows = self.thresholds > 0
            reach = self.faces.reach(self.P[rows], move[rows])
            # All of it, if that is a gain in spite of the kinks.
            gained = self.move(move) or (self.move(reach * move) if reach < 1 else 0.0)
            total += gained
            whole = reach == 1
            if whole or gained <= PIECE * total:
                break
        return total, whole

    def move(self, step: Floats) -> float:
        """Add the step, and return what is gained; or do nothing."""
        P, rows = self.P + step, self.thresholds > 0
        P[rows] = self.faces.retract(self.P[rows], P[rows])
        G = self.G + np.einsum(PRODUCT[self.B.ndim], self.B, P - self.P, optimize=True)
        gained = self.value(self.P, self.G) - self.value(P, G)
        if not gained > 0:
            return 0.0
        self.P, self.G = P, G
        return gained

    def newton_step(self) -> Floats:
        """To the minimum, were the penalty as smooth everywhere as around P."""
        slope = self.G + self.penalty_slope()
        free = (self.P != 0) | (self.thresholds == 0)[:, None]
        free &= self.own[:, None] > 0
        scale = np.sqrt(np.where(self.own > 0, self.own, 1.0))
        if self.B.ndim == 4:
            return self.solve_coupled(-slope, free, scale)
        B, rows = self.B.transpose(2, 0, 1).copy(), np.arange(len(scale))
        norms = np.linalg.norm(self.P, axis=1)
        B[:, rows, rows] += self.bend() * (1 - (self.P.T / np.where(norms > 0, norms, 1.0)) ** 2)
        return solve_masked(B, -slope.T, scale, free.T).T

    def solvable(self) -> bool:
        """Whether the entries that move together are in one block of B."""
        return self.B.ndim == 4 or not self.tied().any()

    def tied(self) -> NDArray[np.bool_]:
        """Entries that move with others of their row."""
        return self.faces.ties(self.P) & (self.thresholds > 0)[:, None]

    def bend(self) -> Floats:
        """Curvature of the penalty across the rows, (k,)."""
        return self.thresholds * self.faces.bend(self.P)

    def solve_coupled(self, b: Floats, free: NDArray[np.bool_], scale: Floats) -> Floats:
        """The same with all interactions: tied entries of a row are one unknown."""
        k, m = self.P.shape
        B, rows = self.B.copy(), np.arange(k)
        norms = np.linalg.norm(self.P, axis=1, keepdims=True)
        u = self.P / np.where(norms > 0, norms, 1.0)
        across = np.eye(m) - u[:, :, None] * u[:, None, :]
        B[rows, :, rows, :] += self.bend()[:, None, None] * across
        B, scales = B.reshape(k * m, k * m), np.repeat(scale, m)
        tied = self.tied()
        if not tied.any():
            return solve_masked(B, b.ravel(), scales, free.ravel()).reshape(k, m)
        # Z (k m, unknowns): an entry follows the first one of its row that it is tied to.
        unknown = np.arange(k * m).reshape(k, m)
        unknown = np.where(tied, unknown[rows, tied.argmax(axis=1)][:, None], unknown).ravel()
        Z = np.zeros((k * m, k * m))
        Z[np.arange(k * m), unknown] = np.where(tied, np.sign(self.P), 1.0).ravel()
        lead = np.unique(unknown)
        Z = Z[:, lead]
        z = solve_masked(Z.T @ B @ Z, Z.T @ b.ravel(), scales[lead], free.ravel()[lead])
        return (Z @ z).reshape(k, m)

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
