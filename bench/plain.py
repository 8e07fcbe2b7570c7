"""Algorithm 1 written plainly in NumPy and SciPy: the baseline of `against_plain.py`.

Selection: the dominant eigenvector of every output (`eigh` for few features, else `eigsh` on the
operator), then the paper's refinement, h <- grad f / |grad f| with the Armijo rule. Refit: FISTA
with backtracking on the stored activations, with columns scaled to norm 1 (and the penalty to
match); without that it stalls far from the optimum. The penalty is l1/l2. Lower-order terms are a
constant feature, or an intercept and ridge-penalized linear weights.
"""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import expit, logsumexp


class Step(NamedTuple):
    """The state of the run after each refit."""

    n_components: int
    seconds: float
    objective: float
    selection: float
    refit: float


def multiclass_logistic(y: np.ndarray, O: np.ndarray) -> tuple[float, np.ndarray]:
    rows, log_sum = np.arange(len(y)), logsumexp(O, axis=1, keepdims=True)
    D = np.exp(O - log_sum)
    D[rows, y] -= 1
    return float((log_sum[:, 0] - O[rows, y]).sum()), D


def binary_logistic(Y: np.ndarray, O: np.ndarray) -> tuple[float, np.ndarray]:
    return float(np.logaddexp(0, -Y * O).sum()), -Y * expit(-Y * O)


def squares(X):
    return X.multiply(X).tocsr() if sp.issparse(X) else X * X


def activations(X, X2, H: np.ndarray, anova: bool) -> np.ndarray:
    S = np.asarray((X @ H.T) ** 2)
    return (S - X2 @ (H * H).T) / 2 if anova else S


def gamma_matvec(X, X2, d_c: np.ndarray, h: np.ndarray, anova: bool) -> np.ndarray:
    product = X.T @ (d_c * (X @ h))
    return (product - (X2.T @ d_c) * h) / 2 if anova else product


def dominant(X, X2, d_c: np.ndarray, anova: bool, few: int = 150) -> tuple[float, np.ndarray]:
    d = X.shape[1]
    if d <= few and not sp.issparse(X):
        G = X.T @ (d_c[:, None] * X)
        if anova:
            G = (G - np.diag(np.diag(G))) / 2
        values, vectors = np.linalg.eigh(G)
        top = np.abs(values).argmax()
        return abs(values[top]), vectors[:, top]
    operator = LinearOperator((d, d), matvec=lambda h: gamma_matvec(X, X2, d_c, h.ravel(), anova))
    values, vectors = eigsh(operator, k=1, which="LM", tol=1e-3, v0=np.ones(d))
    return abs(values[0]), vectors[:, 0]


def select(X, X2, D: np.ndarray, anova: bool, max_iter: int = 50) -> np.ndarray:
    """Best single output first, then steps along the gradient of f = sum_c (h' Gamma_c h)^2."""
    tops = [dominant(X, X2, D[:, c], anova) for c in range(D.shape[1])]
    h = max(tops, key=lambda top: top[0])[1]

    def forms(h: np.ndarray) -> np.ndarray:
        return D.T @ activations(X, X2, h[None], anova)[:, 0]

    q = forms(h)
    for _ in range(max_iter):
        gradient = gamma_matvec(X, X2, D @ q, h, anova)
        norm = np.linalg.norm(gradient)
        if norm == 0:
            break
        direction, f, eta = gradient / norm - h, float(q @ q), 1.0
        while eta > 1e-6:
            new = h + eta * direction
            new_q = forms(new)
            if new_q @ new_q >= f + 1e-4 * eta * 4 * (gradient @ direction):
                break
            eta /= 2
        else:
            break
        gained = float(new_q @ new_q) - f
        h, q = new, new_q
        if gained <= 1e-3 * f:
            break
    return h / np.linalg.norm(h)


def refit(
    value_grad: Callable, P: np.ndarray, thresholds: np.ndarray, L: float, tol: float, max_iter: int
) -> tuple[np.ndarray, float, float]:
    """FISTA with backtracking: P, objective, L. Rows of P with threshold 0 are not penalized.

    It ends when ten iterations gain less than tol times the objective. (The usual rule, a small
    change of P, ends far from the optimum: on letter, with 100 basis vectors, at nearly three times
    the objective.)
    """

    def penalty(P: np.ndarray) -> float:
        return float(thresholds @ np.linalg.norm(P, axis=1))

    Y, momentum, best = P, 1.0, np.inf
    for n_iter in range(max_iter):
        value, G = value_grad(Y)
        while True:
            Z = Y - G / L
            norms = np.linalg.norm(Z, axis=1)
            kept = np.maximum(1 - thresholds / L / np.where(norms > 0, norms, np.inf), 0)
            kept[thresholds == 0] = 1
            new = kept[:, None] * Z
            move = new - Y
            after = value_grad(new, gradient=False)[0]
            if after <= value + (G * move).sum() + L / 2 * (move * move).sum() + 1e-12 * abs(value):
                break
            L *= 2
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        Y = new + (momentum - 1) / following * (new - P)
        P, momentum = new, following
        if n_iter % 10 == 9:
            objective = after + penalty(P)
            if best - objective <= tol * objective:
                break
            best = objective
    return P, after + penalty(P), L


def fit(
    X,
    y: np.ndarray,
    m: int,
    *,
    loss: Callable,
    anova: bool,
    lower: str,
    alpha: float,
    n_components: int,
    alpha_linear: float = 1.0,
    tol: float = 1e-4,
    max_iter: int = 1000,
) -> Iterator[Step]:
    """Run the algorithm; yield a Step after every refit."""
    begun = perf_counter()
    spent = {"selection": 0.0, "refit": 0.0}
    n = X.shape[0]
    if lower == "augment":
        stack = sp.hstack if sp.issparse(X) else np.hstack
        X = stack([np.ones((n, 1)), X])
        X = X.tocsr() if sp.issparse(X) else X
    X2 = squares(X) if anova else None
    explicit = lower == "explicit"
    scales = np.zeros(0)
    if explicit:
        column_norms = np.sqrt(np.asarray(squares(X).sum(axis=0)).ravel() + alpha_linear)
        scales = np.concatenate([[np.sqrt(n)], column_norms])
    n_free = len(scales)
    ridge = np.zeros((n_free, 1))
    ridge[1:, 0] = alpha_linear
    H, A = np.zeros((0, X.shape[1])), np.zeros((n, 0))
    P = np.zeros((n_free, m))  # lower-order terms first, then the rows of V, all scaled
    L = 1.0

    def outputs(P: np.ndarray) -> np.ndarray:
        O = A @ (P[n_free:] / a_scales)
        if explicit:
            O += P[0] / scales[0] + X @ (P[1:n_free] / scales[1:, None])
        return O

    def value_grad(P: np.ndarray, gradient: bool = True) -> tuple[float, np.ndarray | None]:
        value, D = loss(y, outputs(P))
        if explicit:
            free = P[:n_free] / scales[:, None]
            value += 0.5 * float((ridge * free**2).sum())
        if not gradient:
            return value, None
        G = np.empty_like(P)
        G[n_free:] = A.T @ D / a_scales
        if explicit:
            G[0], G[1:n_free] = D.sum(axis=0), X.T @ D
            G[:n_free] = (G[:n_free] + ridge * free) / scales[:, None]
        return value, G

    for _ in range(2 * n_components):  # some vectors are dropped again
        a_scales = np.sqrt((A**2).sum(axis=0))[:, None]
        a_scales[a_scales == 0] = 1
        thresholds = np.concatenate([np.zeros(n_free), alpha / a_scales[:, 0]])
        start = perf_counter()
        objective = value_grad(P)[0]
        if len(P):
            P, objective, L = refit(value_grad, P, thresholds, max(L / 2, 1e-3), tol, max_iter)
        spent["refit"] += perf_counter() - start
        kept = np.concatenate([np.ones(n_free, bool), (P[n_free:] != 0).any(axis=1)])
        P = P[kept]
        A, H = A[:, kept[n_free:]], H[kept[n_free:]]
        a_scales = a_scales[kept[n_free:]]
        yield Step(len(H), perf_counter() - begun, objective, spent["selection"], spent["refit"])
        if len(H) >= n_components:
            return
        start = perf_counter()
        D = loss(y, outputs(P))[1]
        h = select(X, X2, D, anova)
        spent["selection"] += perf_counter() - start
        a = activations(X, X2, h[None], anova)
        H, A = np.vstack([H, h]), np.hstack([A, a])
        P = np.vstack([P, np.zeros((1, m))])
