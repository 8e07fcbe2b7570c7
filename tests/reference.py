"""Slow twins of the kernels, written from the formulas with loops and dense matrices."""

from itertools import combinations

import numpy as np
from scipy.linalg import block_diag


def dense_of(X, augment=False):
    """X as a float64 array, with the column of ones in front that `augment` stands for."""
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    return np.column_stack([np.ones(len(X)), X]) if augment else X


def anova(h, x):
    """sum_{i<j} h_i x_i h_j x_j, term by term."""
    return sum(h[i] * x[i] * h[j] * x[j] for i, j in combinations(range(len(x)), 2))


def squared(h, x):
    return sum(h[i] * x[i] for i in range(len(x))) ** 2


ACTIVATIONS = {"squared": squared, "anova": anova}


def activations(X, H, activation):
    """S (n, k) of X (n, d) and H (k, d), one row and one basis vector at a time."""
    s = ACTIVATIONS[activation]
    return np.array([[s(h, x) for h in H] for x in X]).reshape(len(X), len(H))


def fast_activations(X, H, activation):
    """The same in whole matrices, for sizes at which the loops would take too long."""
    squares = (X @ H.T) ** 2
    return squares if activation == "squared" else (squares - (X * X) @ (H * H).T) / 2


def gamma(X, D, activation):
    """Gamma (m, d, d): entry ij sums D_nc x_ni x_nj; anova keeps half the part off the diagonal."""
    G = np.einsum("nc,ni,nj->cij", D, X, X, optimize=True)
    return G if activation == "squared" else G * (0.5 - 0.5 * np.eye(X.shape[1]))


def matvecs(G, B):
    return np.einsum("cij,jc->ic", G, B)


def forms(G, h):
    return np.einsum("cij,i,j->c", G, h, h)


def combine(G, w, h):
    return np.einsum("c,cij,j->i", w, G, h, optimize=True)


def numerical_gradient(f, H, step=1e-4):
    """Central differences of f at H; exact up to rounding where f is quadratic."""
    G = np.empty_like(H)
    for at in np.ndindex(*H.shape):
        up, down = H.copy(), H.copy()
        up[at] += step
        down[at] -= step
        G[at] = (f(up) - f(down)) / (2 * step)
    return G


def power_method(G, steps, seed=0):
    """The plain power method on one matrix (d, d): the Rayleigh quotient after `steps`."""
    h = np.random.default_rng(seed).standard_normal(len(G))
    for _ in range(steps):
        h = G @ h
        h /= np.linalg.norm(h)
    return h @ G @ h


def largest(G):
    """max_h |h'Gamma_c h| over unit h, for each matrix of G (m, d, d)."""
    return np.abs(np.linalg.eigvalsh(G)).max(axis=1)


def table_matrix(tables):
    """The block-diagonal B (L, d) of tables: dense, sparse, or scales of levels."""
    blocks = (B.toarray() if hasattr(B, "toarray") else B for B in tables.blocks)
    return block_diag(*[np.diag(B) if B.ndim == 1 else B for B in blocks])
