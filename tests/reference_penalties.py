"""Slow NumPy twins of the penalties, written from the formulas, and unrelated projections."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import minimize

# ||v|| of one row.
NORMS = {
    "l1": lambda v: np.sum(np.abs(v)),
    "l1/l2": lambda v: np.hypot.reduce(v, initial=0),
    "l1/linf": lambda v: np.max(np.abs(v), initial=0),
}


def project_simplex_cap(v, radius):
    """Projection of v (m,) on {u : sum |u| <= radius} by sorting."""
    if radius == 0 or np.sum(np.abs(v)) <= radius:
        return 0 * v if radius == 0 else v.copy()
    ranked = np.sort(np.abs(v))[::-1]
    shifts = (np.cumsum(ranked) - radius) / np.arange(1, len(v) + 1)
    shift = shifts[np.sum(ranked > shifts) - 1]
    return np.sign(v) * np.maximum(np.abs(v) - shift, 0)


# Projection of one row on the ball of radius t of the *dual* norm.
DUAL_BALLS = {
    "l1": lambda v, t: np.clip(v, -t, t),
    "l1/l2": lambda v, t: v * min(1, t / max(np.hypot.reduce(v, initial=0), 1e-300)),
    "l1/linf": project_simplex_cap,
}


def value(name, V, weights=None):
    weights = np.ones(len(V)) if weights is None else weights
    return float(sum(w * NORMS[name](v) for w, v in zip(weights, V, strict=True)))


def prox(name, V, thresholds):
    """Moreau: prox_t(v) = v - projection of v on the dual ball of radius t."""
    rows = [v - DUAL_BALLS[name](v, t) for v, t in zip(V, thresholds, strict=True)]
    return np.array(rows).reshape(V.shape)


def project(name, V, tau, weights=None, metric=None):
    """Bisection on the multiplier of Omega(U) <= tau."""
    weights = np.ones(len(V)) if weights is None else np.asarray(weights)
    metric = np.ones(len(V)) if metric is None else np.asarray(metric)
    if value(name, V, weights) <= tau:
        return V.copy()
    low, high = 0.0, 1.0
    while value(name, prox(name, V, high * weights / metric), weights) > tau:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if value(name, prox(name, V, middle * weights / metric), weights) > tau:
            low = middle
        else:
            high = middle
    return prox(name, V, high * weights / metric)


def project_generic(name, V, tau, weights, metric):
    """The same by a general-purpose solver: U and slack variables S with sum of S <= tau."""
    k, m = V.shape
    width = m if name == "l1" else 1

    def split(x):
        U, S = x[: k * m].reshape(k, m), x[k * m :].reshape(k, width)
        if name == "l1/l2":  # lengths times directions: |U|^2 <= S^2 is degenerate at zero
            U = S * U / np.linalg.norm(U, axis=1)[:, None]
        return U, S

    def inside(x):  # what must be >= 0
        U, S = split(x)
        return S.ravel() if name == "l1/l2" else np.r_[(S - U).ravel(), (S + U).ravel()]

    U = V.ravel() if name == "l1/l2" else np.zeros(k * m)
    result = minimize(
        lambda x: 0.5 * np.sum(metric[:, None] * (split(x)[0] - V) ** 2),
        np.r_[U, np.full(k * width, tau / (2 * width * weights.sum()))],
        method="SLSQP",
        constraints=[
            {"type": "ineq", "fun": inside},
            {"type": "ineq", "fun": lambda x: tau - weights @ split(x)[1].sum(axis=1)},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return split(result.x)[0]


def criterion(name, q):
    """The selection criterion alone; its gradient is tested by finite differences."""
    if name == "l1":
        return np.max(np.abs(q))
    if name == "l1/l2":
        return np.sum(q**2)
    return np.sum(np.where(np.abs(q) <= 1, q**2 / 2, np.abs(q) - 0.5))


def fista_update(name, Y, G, steps, V_old, thresholds=None, tau=None, weights=None):
    """The unfused lines: V_new and (linear, quadratic, restart)."""
    S = steps[:, None]
    Z = Y - S * G
    V_new = prox(name, Z, thresholds) if tau is None else project(name, Z, tau, weights, 1 / steps)
    return V_new, (
        np.sum(G * (V_new - Y)),
        np.sum((V_new - Y) ** 2 / S),
        np.sum((Y - V_new) * (V_new - V_old) / S),
    )


def assert_is_prox(penalty, V, thresholds, U):
    """(v - u) / t is a subgradient of the norm at u: dual norm <= 1 and attained at u."""
    for v, t, u in zip(V, thresholds, U, strict=True):
        eps = 1e-12 * (np.abs(v).sum() + t)
        assert penalty.dual_norm([v - u]) <= t + eps
        assert_allclose((v - u) @ u, t * penalty.value([u]), atol=eps * (1 + np.abs(v).max()))


class Plain:
    """A user's penalty: plain Python with the whole-matrix verbs and nothing else."""

    def __init__(self, penalty):
        self.value, self.dual_norm = penalty.value, penalty.dual_norm
        self.prox, self.project, self.criterion = penalty.prox, penalty.project, penalty.criterion
