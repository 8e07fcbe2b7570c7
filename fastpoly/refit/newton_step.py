"""The minimum of Newton's second-order model with the penalty, without touching the n rows.

    minimize  q(x) = <g0, x - x0> + 1/2 <x - x0, B (x - x0)> + alpha Omega(V)

x (groups, k q) is the output layer V in the layout of `fastpoly.kernels.quadratic`. Each round
makes a few sweeps of block coordinate descent, which find the zeros, and solves one linear system
per group, in which a smooth model stands for the penalty. Sweeps alone are slow where activations
are nearly collinear, as those of dense quadratic features are; systems alone never reach a zero.
"""

from contextlib import suppress

import numpy as np

from fastpoly.kernels.quadratic import sweep
from fastpoly.refit.output_problem import Floats, OutputProblem

# All three are measured in bench/README.md, "Ablation of the output refit".
INNER = 1e-2  # share of the total gain; a round that gains less is the last one
SWEEPS = 10  # sweeps per round: enough to find the zeros, and cheaper than a linear system
SHARPER = 0.3  # smoothing of a round, as a share of the smoothing of the round before


def minimize_model(problem: OutputProblem, P: Floats, G: Floats, B: Floats) -> Floats:
    """The minimizer (k, m) of the penalized model around P (k, m), where the gradient is G."""
    model, total, level = Model(problem, P, G, B), 0.0, 1.0
    while level > np.finfo(np.float64).eps:
        gained = model.descend() + model.solve(level)
        total += gained
        if gained <= INNER * total:
            break
        level *= SHARPER
    model.sweep()  # makes zero rows exactly zero again
    return ungrouped(model.x, len(P))


def grouped(P: Floats, groups: int) -> Floats:
    """P (k, m) in the layout (groups, k q), a copy."""
    return P.reshape(len(P), groups, -1).swapaxes(0, 1).reshape(groups, -1).copy()


def ungrouped(x: Floats, k: int) -> Floats:
    """The inverse of `grouped`."""
    return x.reshape(len(x), k, -1).swapaxes(0, 1).reshape(k, -1)


def row_curvature(B: Floats, k: int) -> Floats:
    """The largest second derivative within every row of V, (k,)."""
    q = B.shape[1] // k
    own = np.einsum("grarb->rgab", B.reshape(len(B), k, q, k, q))
    return np.linalg.eigvalsh(own).max(axis=(1, 2))


class Model:
    """A point x of the model with the gradient g of its smooth part and the value q(x)."""

    def __init__(self, problem: OutputProblem, P: Floats, G: Floats, B: Floats) -> None:
        self.problem, self.B, self.k = problem, B, len(P)
        self.thresholds = problem.alpha * problem.weights
        self.curvature = row_curvature(B, self.k)
        self.x0, self.g0 = grouped(P, len(B)), grouped(G, len(B))
        self.x, self.g = self.x0.copy(), self.g0.copy()
        self.value = problem.penalty_value(P)

    def value_at(self, x: Floats, g: Floats) -> float:
        """q(x), from the gradients at x0 and at x."""
        smooth = 0.5 * float(((self.g0 + g) * (x - self.x0)).sum())
        return smooth + self.problem.penalty_value(ungrouped(x, self.k))

    def sweep(self) -> None:
        """Update every row once."""
        sweep(self.problem.penalty, self.B, self.curvature, self.thresholds, self.x, self.g)

    def descend(self) -> float:
        """Sweep a few times, then extrapolate ever farther while it pays; return the gain."""
        before, x, g = self.value, self.x.copy(), self.g.copy()
        for _ in range(SWEEPS):
            self.sweep()
        self.value = self.value_at(self.x, self.g)
        step, change = self.x - x, self.g - g
        while self.move(step, change):
            step, change = 2 * step, 2 * change
        return before - self.value

    def solve(self, level: float) -> float:
        """Take one Newton step with the smooth model of the penalty; return the gain."""
        before, step = self.value, self.newton_step(level)
        change = (self.B @ step[:, :, None])[:, :, 0]
        for t in 0.5 ** np.arange(7):  # shorter steps gain less than the next sweeps
            if self.move(t * step, t * change):
                break
        return before - self.value

    def move(self, step: Floats, change: Floats) -> bool:
        """Take the step, in which g changes by `change`, if that is a gain."""
        x, g = self.x + step, self.g + change
        value = self.value_at(x, g)
        better = value < self.value
        if better:
            self.x, self.g, self.value = x, g, value
        return better

    def newton_step(self, level: float) -> Floats:
        """The step to the minimum of the smooth model; entries that are kept at zero stay."""
        smooth = self.problem.penalty.smooth_model(ungrouped(self.x, self.k), level)
        move = np.zeros_like(self.x)
        if smooth is None:
            return move
        t = self.thresholds[:, None]
        slope, d, a = (
            grouped(scale * np.where(t > 0, part, 0.0), len(self.B))
            for part, scale in zip(smooth, (t, t, np.sqrt(t)), strict=True)
        )
        row = np.repeat(np.arange(self.k), self.x.shape[1] // self.k)
        free = np.isfinite(d) & (self.curvature > 0)[row]
        for j, at in enumerate(free):
            B = self.B[j][np.ix_(at, at)] + np.diag(d[j, at])
            B -= np.where(row[at, None] == row[at], a[j, at, None] * a[j, at], 0.0)
            with suppress(np.linalg.LinAlgError):
                move[j, at] = np.linalg.solve(B, -(self.g + slope)[j, at])
        return move
