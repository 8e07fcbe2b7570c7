"""Unrelated solvers for the refit: losses and FISTA in plain NumPy, and SPAMS."""

import numpy as np
import reference_penalties
from scipy.special import expit, huber, kl_div, logsumexp

from fastpoly.kernels.losses import LOSSES

# ---- losses: (Y as encoded, O (n, m)) -> values (n,), gradients (n, m) --------------------------


def _softmax(Y, O, margin):
    rows, y = np.arange(len(O)), Y[:, 0].astype(int)
    O = O + margin
    O[rows, y] -= margin
    log_sum = logsumexp(O, axis=1)
    G = np.exp(O - log_sum[:, None])
    G[rows, y] -= 1
    return log_sum - O[rows, y], G


def _multiclass_squared_hinge(Y, O):
    rows, y = np.arange(len(O)), Y[:, 0].astype(int)
    excess = np.maximum(1 + O - O[rows, y][:, None], 0)
    excess[rows, y] = 0
    G = 2 * excess
    G[rows, y] = -2 * excess.sum(axis=1)
    return (excess**2).sum(axis=1), G


def _binary_squared_hinge(Y, O):
    excess = np.maximum(1 - Y * O, 0)
    return (excess**2).sum(axis=1), -2 * Y * excess


ROWS = {
    "multiclass_logistic": lambda Y, O: _softmax(Y, O, 0.0),
    "smoothed_multiclass_hinge": lambda Y, O: _softmax(Y, O, 1.0),
    "multiclass_squared_hinge": _multiclass_squared_hinge,
    "binary_logistic": lambda Y, O: (np.logaddexp(0, -Y * O).sum(axis=1), -Y * expit(-Y * O)),
    "smoothed_binary_hinge": lambda Y, O: (
        np.logaddexp(0, 1 - Y * O).sum(axis=1),
        -Y * expit(1 - Y * O),
    ),
    "binary_squared_hinge": _binary_squared_hinge,
    "squared": lambda Y, O: (0.5 * ((O - Y) ** 2).sum(axis=1), O - Y),
    "huber": lambda Y, O: (huber(1.0, O - Y).sum(axis=1), np.clip(O - Y, -1, 1)),
    "poisson": lambda Y, O: (kl_div(Y, np.exp(O)).sum(axis=1), np.exp(O) - Y),
}


def loss_grad(name, A, Y, V, w=None):
    """sum_i w_i l(y_i, V'a_i) and its gradient in V."""
    w = np.ones(len(A)) if w is None else w
    values, D = ROWS[name](Y, A @ V)
    return float(w @ values), A.T @ (w[:, None] * D)


class PlainLoss:
    """A user's loss: plain Python with the whole-matrix verbs."""

    def __init__(self, name):
        self.name, self.target, self.smoothness = name, LOSSES[name].target, lambda m: 0.5

    def value(self, Y, O, w=None):
        return self.value_grad(Y, O, w)[0]

    def value_grad(self, Y, O, w=None):
        w = np.ones(len(O)) if w is None else w
        values, D = ROWS[self.name](Y, O)
        return float(w @ values), w[:, None] * D


def targets(name, rng, O):
    """Random targets that outputs O explain in part, in the encoded form."""
    loss, noisy = LOSSES[name](), O + rng.normal(size=O.shape)
    if loss.target == "label":
        y = noisy.argmax(axis=1)
        return loss.encode(y, O.shape[1])
    if loss.target == "sign":
        return loss.encode(np.where(noisy - np.median(noisy, axis=0) > 0, 1.0, -1.0))
    return loss.encode(np.floor(np.exp(noisy / 3)) if name == "poisson" else noisy)


# ---- solvers ------------------------------------------------------------------------------------


def fista(value_grad, prox, V, n_iter=5000, tol=1e-11):
    """Textbook FISTA with backtracking and restarts, stopped when the steps vanish.

    `prox(V, s)` is the proximal operator of s times the penalty.
    """
    Y, t, L = V, 1.0, 1.0
    for _ in range(n_iter):
        value, G = value_grad(Y)
        while True:
            new = prox(Y - G / L, 1 / L)
            step = new - Y
            model = value + (G * step).sum() + L / 2 * (step**2).sum()
            if value_grad(new)[0] <= model + 1e-13 * abs(value):
                break
            L *= 2
        if ((Y - new) * (new - V)).sum() > 0:
            t = 1.0
        following = (1 + np.sqrt(1 + 4 * t * t)) / 2
        Y, V, t = new + (t - 1) / following * (new - V), new, following
        if (step**2).sum() <= tol**2 * (1 + (new**2).sum()):
            break
        L *= 0.95
    return V


def solve(name, penalty, A, Y, m, alpha, w=None):
    """The penalized refit: (V, objective)."""

    def prox(V, step):
        return reference_penalties.prox(penalty, V, np.full(len(V), alpha * step))

    V = fista(lambda V: loss_grad(name, A, Y, V, w), prox, np.zeros((A.shape[1], m)))
    return V, loss_grad(name, A, Y, V, w)[0] + alpha * reference_penalties.value(penalty, V)


SPAMS_REGUL = {"l1": "l1", "l1/l2": "l1l2", "l1/linf": "l1linf"}


def spams_logistic(A, y, m, penalty, alpha, n_iter=20000, tol=1e-12, it0=10):
    """The multi-class logistic refit by SPAMS, whose loss is a mean over the rows: V (k, m)."""
    import spams

    n, k = A.shape
    return spams.fistaFlat(
        np.asfortranarray(y, dtype=np.float64).reshape(-1, 1, order="F"),
        np.asfortranarray(A), np.zeros((k, m), order="F"), loss="multi-logistic",
        regul=SPAMS_REGUL[penalty], lambda1=alpha / n, max_it=n_iter, tol=tol, it0=it0,
        numThreads=1,
    )  # fmt: skip
