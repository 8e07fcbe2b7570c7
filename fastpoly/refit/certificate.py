"""The duality gap of the convex problem with fixed basis vectors."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.objective import Objective
from fastpoly.rows.rows import Gradient
from fastpoly.state import Model

Floats = NDArray[np.float64]


def duality_gap(
    problem: Any,
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
    P : ndarray, (p, m)
        Output layer, intercept and linear weights, stacked.
    G : ndarray, (p, m)
        Gradient of the loss, without ridge terms.
    loss : float
    conjugate : callable
        c -> sum_i w_i l*(c d_i / w_i), NaN where it is not known.
    k : int
        Number of rows of P with the penalty.
    ridge : ndarray, (p,)
        Ridge penalty of the other rows.
    metric : callable
        () -> squared norms (p,) of the columns that the rows of P are multiplied by.

    Returns
    -------
    float
        At least 0.
    """
    penalty, alpha, tau = problem.penalty, problem.alpha, problem.tau
    dual = float(penalty.dual_norm(G[:k])) if k else 0.0
    c = 1.0 if tau is not None or dual <= alpha or alpha == 0 else alpha / dual
    bound = conjugate(c)
    if not np.isfinite(bound):
        bound = c * (float(np.vdot(G, P)) - loss)
    gap = loss + 0.5 * float(ridge @ (P * P).sum(axis=1)) + bound
    omega = float(penalty.value(P[:k])) if k else 0.0
    gap += alpha * omega if tau is None else tau * dual
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
