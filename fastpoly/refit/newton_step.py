"""The minimum of Newton's second-order model with the penalty, without touching the n rows.

    minimize  q(P) = <G0, P - P0> + 1/2 <P - P0, B (P - P0)> + alpha Omega(V)

B (k, k, m), one block per output, or (k, m, k, m). Each round makes a few sweeps of block
coordinate descent, which find the zeros, combines their points (Anderson), and solves one linear
system, in which a smooth model stands for the penalty. Sweeps alone are slow where activations are
nearly collinear, as those of dense quadratic features are; systems alone never reach a zero.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import Penalty
from fastpoly.kernels.quadratic import RowDescent
from fastpoly.refit.fista import fista
from fastpoly.refit.output_problem import OutputProblem, QuadraticProblem

Floats = NDArray[np.float64]

# A round that gains less than this share of what all rounds gained is the last. With 1e-1 four of
# the 24 refits are not finished, with 1e-3 some take twice as long.
INNER = 1e-2
# Rounds at most, which few models need.
ROUNDS = 40
# Points that Anderson's extrapolation combines: the sweeps of a round. Without it l1/linf is not
# finished in time on segment and digits.
POINTS = 5

# B times a matrix, by the number of dimensions of B.
PRODUCT = {3: "ijc,jc->ic", 4: "iejc,jc->ie"}


def direction(problem: OutputProblem, P: Floats, G: Floats, B: Floats) -> Floats:
    """The minimizer of the penalized model around P, where the gradient is G."""
    if problem.tau is None and isinstance(problem.penalty, Penalty):
        return minimize_model(problem, P, G, B)
    model = QuadraticProblem(problem, P, G, B)
    return fista(model, P, tol=INNER, max_iter=ROUNDS * POINTS).P


def minimize_model(
    problem: OutputProblem, P: Floats, G: Floats, B: Floats, tol: float | None = None
) -> Floats:
    """The same for the penalized form and a compiled penalty.

    Parameters
    ----------
    problem : OutputProblem
    P, G : ndarray, (k, m)
    B : ndarray, (k, k, m) or (k, m, k, m)
    tol : float, optional
        In place of `INNER`.

    Returns
    -------
    ndarray, (k, m)
    """
    tol = INNER if tol is None else tol
    model, total = _Model(problem, P, G, B), 0.0
    for n_round in range(ROUNDS):
        gained = model.descend()
        if n_round:  # where the first sweeps are enough, a system would be wasted
            gained += model.solve()
        total += gained
        if gained <= tol * total:
            break
    # The last sweep makes zero rows exactly zero again.
    model.sweep()
    return model.P


def anderson(points: list[Floats]) -> Floats:
    """Weights, which add up to 1, of all points but the first whose last steps cancel best."""
    steps = np.diff(np.array(points).reshape(len(points), -1), axis=0)
    # Only ratios matter: squares of tiny steps must not vanish.
    steps /= max(np.abs(steps).max(initial=0.0), 1e-300)
    gram = steps @ steps.T
    gram[np.diag_indices(len(gram))] += 1e-10 * gram.trace() + 1e-300
    weights = np.linalg.solve(gram, np.ones(len(gram)))
    return weights / weights.sum()


class _Model:
    """A point P of the model with the gradient G of its smooth part and the value q(P)."""

    def __init__(self, problem: OutputProblem, P0: Floats, G0: Floats, B: Floats) -> None:
        self.problem, self.P0, self.G0, self.B = problem, P0, G0, B
        self.thresholds = problem.alpha * problem.weights
        self.rows = RowDescent(problem.penalty, B, self.thresholds)
        self.P, self.G = P0.copy(), G0.copy()
        self.value = problem.penalty_value(P0)
        self.level = 0.1  # of smoothing, as a share of each row's norm

    def value_at(self, P: Floats, G: Floats) -> float:
        """q(P), from the gradients at P0 and at P."""
        return 0.5 * float(((self.G0 + G) * (P - self.P0)).sum()) + self.problem.penalty_value(P)

    def accept(self, P: Floats, G: Floats) -> float:
        """Move to P if that is a gain, and return the gain."""
        gained = self.value - self.value_at(P, G)
        if not gained > 0:
            return 0.0
        self.P, self.G, self.value = P, G, self.value - gained
        return gained

    def sweep(self) -> None:
        """Update every row once."""
        self.rows.sweep(self.P, self.G)

    def descend(self) -> float:
        """A few sweeps, then the combination of their points; the gain."""
        before, points, gradients = self.value, [self.P.copy()], [self.G.copy()]
        for _ in range(POINTS):
            self.sweep()
            points.append(self.P.copy())
            gradients.append(self.G.copy())
        self.value = self.value_at(self.P, self.G)
        weights = anderson(points)
        self.accept(*(np.tensordot(weights, a[1:], 1) for a in (points, gradients)))
        return before - self.value

    def solve(self) -> float:
        """One Newton step with the smooth model of the penalty, as far as it gains; the gain."""
        move = self.newton_step()
        if move is None:
            return 0.0
        P, G = self.P, self.G
        change = np.einsum(PRODUCT[self.B.ndim], self.B, move, optimize=True)
        total, t = 0.0, 1.0
        while not total and t > 1e-2:  # shorter steps gain less than the next sweeps
            total = self.accept(P + t * move, G + t * change)
            t *= 1.0 if total else 0.5
        # Upper bounds of a norm make short steps: go on while it pays.
        gained = total if t == 1.0 else 0.0
        while gained:
            t *= 2
            gained = self.accept(P + t * move, G + t * change)
            total += gained
        # As in an interior-point method: sharper as soon as this level has little more to give.
        if total <= 0.1 * (self.problem.penalty_value(self.P0) - self.value):
            self.level *= 0.3
        return total

    def newton_step(self) -> Floats | None:
        """To the minimum, with the smooth model for the penalty; None where B has no place for it.

        The system is scaled to a unit diagonal, as rows differ by many orders of magnitude.
        """
        smooth = self.problem.penalty.smooth_model(self.P, self.level)
        if smooth is None or (self.B.ndim == 3 and smooth[2].any()):
            return None
        k, m = self.P.shape
        t = self.thresholds[:, None]
        slope, d, a = (np.where(t > 0, part, 0.0) for part in smooth)
        free = np.isfinite(d) & (self.rows.curvature > 0)[:, None]
        d = np.where(free, t * np.where(free, d, 0.0), 0.0)
        b = -(self.G + t * slope)
        scale = np.sqrt(np.where(free, self.rows.curvature[:, None] + d, 1.0))
        if self.B.ndim == 3:
            B, rows = self.B.transpose(2, 0, 1).copy(), np.arange(k)
            B[:, rows, rows] += d.T
            B /= scale.T[:, :, None] * scale.T[:, None, :]
            B = np.where(free.T[:, :, None] & free.T[:, None, :], B, np.eye(k))
            return solve(B, np.where(free, b / scale, 0.0).T).T / scale
        at = np.flatnonzero(free)
        row, a, scale = at // m, (np.sqrt(t) * a).flat[at], scale.flat[at]
        B = self.B.reshape(k * m, k * m)[np.ix_(at, at)]
        B -= np.where(row[:, None] == row, a[:, None] * a, 0.0)
        B[np.diag_indices(len(at))] += d.flat[at]
        move = np.zeros((k, m))
        move.flat[at] = solve(B / scale / scale[:, None], b.flat[at] / scale) / scale
        return move


def solve(B: Floats, b: Floats) -> Floats:
    """B^-1 b for a stack of systems, or 0 if one of them is singular."""
    try:
        return np.linalg.solve(B, b[..., None])[..., 0]
    except np.linalg.LinAlgError:
        return np.zeros_like(b)
