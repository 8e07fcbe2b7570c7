"""The plain conditional gradient step, without refitting: how far to go toward a new vertex."""

import numpy as np
from numpy.typing import NDArray

from fastpoly.objective import Objective
from fastpoly.state import Model

Floats = NDArray[np.float64]


def plain_step(objective: Objective, model: Model, h: Floats, q: Floats) -> Model:
    """The model after a step toward the basis vector h (d,), with gradient q (m,) in its row of V.

    Constrained: (1 - g) V and g tau p in the new row, with g in 0..1. Penalized: a V and b p, with
    a, b >= 0. The row p is the vertex of the unit ball that decreases the linearized loss most.
    The one or two numbers minimize the objective. Lower-order terms stay.
    """
    from scipy.optimize import minimize  # slow to import, and rarely needed

    problem, rows = objective.problem, objective.rows
    p = problem.penalty.polar(-q)
    old, new = model.append(h[None], 0 * p[None]), np.zeros((len(model.V) + 1, len(p)))
    new[-1] = p
    omega, alpha, tau = problem.omega(model.V), problem.alpha, problem.tau
    # In units in which the new activations have size one.
    squares = float(rows.squared_norms(h[None])[0])
    unit = np.sqrt(rows.n_samples / max(squares, 1e-300)) if tau is None else tau

    def value_grad(x: Floats) -> tuple[float, Floats]:
        a, b = (x[0], unit * x[1]) if tau is None else (1 - x[0], tau * x[0])
        value, G, _, _ = rows.value_layers(old._replace(V=a * old.V + b * new))
        da, db = float(np.vdot(G, old.V)), float(np.vdot(G, new))
        if tau is not None:
            return value, np.array([tau * db - da])
        value += alpha * (a * omega + b)
        return value, np.array([da + alpha * omega, unit * (db + alpha)])

    start, bounds = ([1.0, 0.0], [(0, None)] * 2) if tau is None else ([0.0], [(0, 1)])
    x = minimize(value_grad, start, jac=True, bounds=bounds, method="L-BFGS-B").x
    a, b = (x[0], unit * x[1]) if tau is None else (1 - x[0], tau * x[0])
    return old._replace(V=a * old.V + b * new)
