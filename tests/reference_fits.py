"""The optimum of the l1 problem by an independent method, and data for whole fits.

Basis vectors with an l1 penalty are symmetric matrices with a nuclear norm: W_c = sum_r v_rc h_r
h_r' has |W_c|_* <= sum_r |v_rc|, with equality for its eigenvectors. So the infinite problem is

    minimize  sum_i w_i l(y_i, (<W_c, F_i>)_c) + alpha sum_c |W_c|_*      over symmetric W_c (d, d)

with F_i = x x' (squared activation) or (x x' - diag(x * x)) / 2 (ANOVA: the diagonal of W_c does
not enter the outputs, and is free). Here it is solved by accelerated proximal gradient.
"""

import numpy as np
from scipy.special import expit, logsumexp


def squared(Y, O):
    return 0.5 * ((O - Y) ** 2).sum(1), O - Y


def multiclass_logistic(y, O):
    rows, log_sum = np.arange(len(y)), logsumexp(O, axis=1)
    D = np.exp(O - log_sum[:, None])
    D[rows, y] -= 1
    return log_sum - O[rows, y], D


def binary_logistic(Y, O):
    return np.logaddexp(0, -Y * O).sum(1), -Y * expit(-Y * O)


# rows of outputs -> rows of losses and gradients; a bound of the Hessian
LOSSES = {
    "squared": (squared, 1.0),
    "multiclass_logistic": (multiclass_logistic, 0.5),
    "binary_logistic": (binary_logistic, 0.25),
}


def products(X, activation):
    """F_i for all rows, (n, d, d): the activation of h is h' F_i h."""
    F = np.einsum("ij,ik->ijk", X, X)
    if activation == "anova":
        F = (F - F * np.eye(X.shape[1])) / 2
    return F


class Matrices:
    """The loss as a function of W (m, d, d)."""

    def __init__(self, X, y, m, loss, activation, w=None):
        self.F = products(X, activation).reshape(len(X), -1)
        self.y, self.m, self.d = y, m, X.shape[1]
        self.loss, bound = LOSSES[loss]
        self.w = np.ones(len(X)) if w is None else w
        self.smoothness = bound * np.linalg.norm(np.sqrt(self.w)[:, None] * self.F, 2) ** 2

    def value_grad(self, W):
        values, D = self.loss(self.y, self.F @ W.reshape(self.m, -1).T)
        G = (self.F.T @ (self.w[:, None] * D)).T.reshape(W.shape)
        return float(self.w @ values), (G + G.transpose(0, 2, 1)) / 2


def shrink(values, t):
    return np.sign(values) * np.maximum(np.abs(values) - t, 0)


def project(values, tau):
    """The nearest point with sum of |values| at most tau: shrink by the t that makes it so."""
    if np.abs(values).sum() <= tau:
        return values
    sizes = -np.sort(-np.abs(values).ravel())
    ts = (np.cumsum(sizes) - tau) / np.arange(1, sizes.size + 1)
    return shrink(values, ts[np.flatnonzero(sizes > ts)[-1]])


def on_eigenvalues(W, function):
    values, vectors = np.linalg.eigh(W)
    return np.einsum("cij,cj,ckj->cik", vectors, function(values), vectors)


def nuclear_norm(W):
    return float(np.abs(np.linalg.eigvalsh(W)).sum())


def spectral_norm(G):
    return float(np.abs(np.linalg.eigvalsh(G)).max())


def nuclear_optimum(X, y, m, loss, activation, *, alpha=None, tau=None, w=None, tol=1e-7):
    """The smallest loss + alpha |W|_*, or loss with |W|_* <= tau, up to tol of it."""
    problem = Matrices(X, y, m, loss, activation, w)
    L = problem.smoothness
    W = Y = np.zeros((m, problem.d, problem.d))
    momentum = 1.0
    for step in range(100_000):
        _, G = problem.value_grad(Y)
        prox = (lambda s: shrink(s, alpha / L)) if tau is None else (lambda s: project(s, tau))
        new = on_eigenvalues(Y - G / L, prox)
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        if ((Y - new) * (new - W)).sum() > 0:
            momentum = following = 1.0
        Y = new + (momentum - 1) / following * (new - W)
        W, momentum = new, following
        if step % 50 == 49:
            value, G = problem.value_grad(W)
            largest, inner = spectral_norm(G), float((G * W).sum())
            if tau is None:
                objective = value + alpha * nuclear_norm(W)
                # How far the optimum can be: |W*|_* <= objective / alpha, by convexity.
                gap = alpha * nuclear_norm(W) + inner
                gap += max(largest - alpha, 0) * objective / alpha
            else:
                objective, gap = value, tau * largest + inner
            if gap <= tol * abs(objective):
                return objective
    raise AssertionError("the reference did not converge")


def made_up(seed, n=80, d=5, m=3, loss="multiclass_logistic", hidden=3):
    """X (n, d) and targets that a quadratic model explains in part."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (1 + np.arange(d)) / 3
    scores = (X @ rng.standard_normal((d, hidden))) ** 2 @ rng.standard_normal((hidden, m))
    scores = (scores - scores.mean(0)) / scores.std(0) + 0.5 * rng.standard_normal((n, m))
    if loss in ("squared", "huber"):
        return X, scores
    if loss == "poisson":
        return X, np.floor(np.exp(scores))
    if loss == "binary_logistic":
        return X, np.where(scores > 0, 1, -1)
    return X, scores.argmax(1)


def run(design, y, **options):
    """All states of a run."""
    from fastpoly import conditional_gradient

    return list(conditional_gradient(design, y, **{"random_state": 0, **options}))
