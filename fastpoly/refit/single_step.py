"""The plain conditional gradient step, without refitting: how far to go toward a new vertex."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.features import RowBlocks
from fastpoly.problem import Problem
from fastpoly.rows.contract import Sums
from fastpoly.state import Model

Floats = NDArray[np.float64]


def single_step(
    problem: Problem, features: RowBlocks, V: Floats, q: Floats, offset: Floats
) -> Floats:
    """The output layer after a step toward the last basis vector.

    Constrained: (1 - g) V and g tau p in the new row, with g in 0..1. Penalized: a V and b p, with
    a, b >= 0. The row p is the vertex of the unit ball that decreases the linearized loss most.
    The one or two numbers minimize the objective.

    Parameters
    ----------
    problem : Problem
    features : RowBlocks
        Activations of all k + 1 basis vectors, the new one last.
    V : ndarray, (k, m)
    q : ndarray, (m,)
        Gradient of the loss in the new row.
    offset : ndarray, (n, m)
        The part of the outputs that comes from lower-order terms.

    Returns
    -------
    ndarray, (k + 1, m)
    """
    old, new = _ends(problem, V, q)
    O_old, O_new = features.outputs(old), features.outputs(new)

    def loss(a: float, b: float) -> tuple[float, float, float]:
        value, D = problem.loss.value_grad(problem.Y, offset + a * O_old + b * O_new, problem.w)
        return value, float((D * O_old).sum()), float((D * O_new).sum())

    # In units in which the new activations have size one.
    scale = 1 / max(np.abs(O_new).max(initial=0.0), 1e-300)
    return _minimized(problem, loss, old, new, scale)


def summed_step(sums: Sums, model: Model, h: Floats, q: Floats) -> Floats:
    """As `single_step`, for rows that are not in memory, toward the basis vector h (d,)."""
    problem = sums.problem
    old, new = _ends(problem, model.V, q)
    H = np.vstack([model.H, h])

    def loss(a: float, b: float) -> tuple[float, float, float]:
        value, G, _, _ = sums.value_layers(model._replace(H=H, V=a * old + b * new))
        return value, float(np.vdot(G, old)), float(np.vdot(G, new))

    squares = float(sums.squared_norms(h[None])[0])
    scale = np.sqrt(sums.n_samples / max(squares, 1e-300))
    return _minimized(problem, loss, old, new, scale)


def _ends(problem: Problem, V: Floats, q: Floats) -> tuple[Floats, Floats]:
    """V with a zero row, and zeros with the vertex in that row."""
    p = problem.penalty.polar(-q)
    old = np.vstack([V, np.zeros_like(p)])
    new = np.zeros_like(old)
    new[-1] = p
    return old, new


def _minimized(
    problem: Problem,
    loss: Callable[[float, float], tuple[float, float, float]],
    old: Floats,
    new: Floats,
    scale: float,
) -> Floats:
    """The best combination of the two; loss(a, b) also returns its derivatives."""
    from scipy.optimize import minimize  # slow to import, and rarely needed

    omega = float(problem.penalty.value(old[:-1])) if len(old) > 1 else 0.0

    def objective(a: float, b: float) -> tuple[float, float, float]:
        """The objective at a V + b p and its derivatives in a and b."""
        value, *slopes = loss(a, b)
        if problem.tau is not None:
            return value, *slopes
        strength = problem.alpha
        value += strength * (a * omega + b)
        return value, slopes[0] + strength * omega, slopes[1] + strength

    if problem.tau is not None:
        tau = problem.tau

        def along(g: Floats) -> tuple[float, Floats]:
            value, da, db = objective(1 - g[0], tau * g[0])
            return value, np.array([tau * db - da])

        g = minimize(along, [0.0], jac=True, bounds=[(0, 1)], method="L-BFGS-B").x[0]
        return (1 - g) * old + tau * g * new

    def both(x: Floats) -> tuple[float, Floats]:
        value, da, db = objective(x[0], scale * x[1])
        return value, np.array([da, scale * db])

    bounds = [(0, None), (0, None)]
    a, b = minimize(both, [1.0, 0.0], jac=True, bounds=bounds, method="L-BFGS-B").x
    return a * old + scale * b * new
