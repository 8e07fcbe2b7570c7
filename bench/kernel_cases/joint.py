"""Cases of the joint pass: F over H, V and linear terms with all its gradients."""

from collections.abc import Iterator

import numpy as np
from datasets import made_up_ratings

from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.losses import get_loss
from fastpoly.kernels.matrix import as_matrix

from . import Case


def cases(quick: bool = False) -> Iterator[Case]:
    """Yield the cases; the arrays of a case are made when it is requested."""
    small = 20 if quick else 1
    for n, d, k, m in ((898, 65, 40, 10), (2217, 37, 50, 6), (7500, 17, 60, 26)):
        yield from dense(n // small, d, k, m)
    yield ratings(500_000 // small, 6040, 3706, 30, 4)


def packed(objective: JointObjective, x: np.ndarray, k: int) -> np.ndarray:
    """Value and gradient in one vector."""
    g = np.empty_like(x)
    value = objective.value_grad_packed(x, k, g)
    return np.append(g, value)


def dense(n: int, d: int, k: int, m: int) -> Iterator[Case]:
    """The squared activation and the multi-class logistic loss, against NumPy and its products."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n, d)), rng.integers(0, m, (n, 1)).astype(float)
    H, V = rng.standard_normal((k, d)) / d, rng.standard_normal((k, m)) / k
    x = np.concatenate([H.ravel(), V.ravel()])
    loss = get_loss("multiclass_logistic")
    objectives = [JointObjective(as_matrix(X), loss, Y, m, n_threads=t) for t in (1, 2)]

    def numpy() -> np.ndarray:
        Z = X @ H.T
        S = Z**2
        value, D = loss.value_grad(Y, S @ V)
        GH, GV = 2 * (Z * (D @ V.T)).T @ X, S.T @ D
        return np.concatenate([GH.ravel(), GV.ravel(), [value]])

    D = rng.standard_normal((n, m))
    Z, O, GV = np.empty((n, k)), np.empty((n, m)), np.empty((k, m))
    M, GH = np.empty((n, k)), np.empty((k, d))

    def products() -> np.ndarray:
        np.matmul(X, H.T, out=Z)
        np.matmul(Z, V, out=O)
        np.matmul(Z.T, D, out=GV)
        np.matmul(D, V.T, out=M)
        np.matmul(M.T, X, out=GH)
        return GH

    options = {"bytes": 8 * n * (d + 1), "flops": n * (4 * k * d + 6 * k * m)}

    def run(n_threads: int) -> np.ndarray:
        return packed(objectives[n_threads - 1], x, k)

    shape = f"dense n={n} d={d} k={k} m={m}"
    yield Case("joint pass", shape, run, {"numpy, fused loss": numpy}, {}, **options)
    alone = {"its 5 products alone": products}  # a lower bound, not the same numbers
    yield Case("joint pass", shape, run, alone, {"its 5 products alone": 0.9}, **options, rtol=None)


def ratings(n: int, n_users: int, n_items: int, k: int, m: int) -> Case:
    """One-hot users and items, ANOVA, linear terms and binary logistic losses, against SciPy."""
    X = made_up_ratings(n, n_users, n_items).one_hot()
    rng = np.random.default_rng(0)
    n, d = X.shape
    Y = rng.choice([-1.0, 1.0], (n, m))
    H, V = rng.standard_normal((k, d)) / 4, rng.standard_normal((k, m)) / 4
    b, W = rng.standard_normal(m), rng.standard_normal((d, m)) / 4
    x = np.concatenate([a.ravel() for a in (H, V, b, W)])
    loss = get_loss("binary_logistic")
    objectives = [
        JointObjective(as_matrix(X), loss, Y, m, activation="anova", linear=True, n_threads=t)
        for t in (1, 2)
    ]

    def scipy() -> np.ndarray:
        Z = X @ H.T
        S = (Z**2 - X @ (H**2).T) / 2  # X holds ones: it is its own square
        value, D = loss.value_grad(Y, S @ V + b + X @ W)
        M = D @ V.T
        GH = (X.T @ (M * Z)).T - (X.T @ M).T * H
        parts = GH, S.T @ D, D.sum(axis=0), X.T @ D, value
        return np.concatenate([np.ravel(a) for a in parts])

    return Case(
        "joint pass, ANOVA",
        f"one-hot n={n} d={d} k={k} m={m}",
        lambda t: packed(objectives[t - 1], x, k),
        {"scipy, n x k stored": scipy},
        {"scipy, n x k stored": 5.0},
        bytes=8 * n + 8 * n * m + 32 * d * (k + m),
        flops=6 * n * k * m,
    )
