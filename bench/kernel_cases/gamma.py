"""Cases of the operators Gamma_c: mat-vecs of all outputs, one selection, eigenvectors."""

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from datasets import find, made_up_ratings, one_hot, stand_in
from scipy.sparse.linalg import LinearOperator, eigsh

from fastpoly import Design, conditional_gradient
from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.gamma import DenseGamma
from fastpoly.kernels.losses import BinaryLogistic
from fastpoly.kernels.matrix import as_matrix

from . import Case

QUALITY = 0.999
LADDER = (1.0, 0.7, 0.5, 0.3, 0.2, 0.15, 0.1, 5e-2, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)


def cases(quick: bool = False) -> Iterator[Case]:
    """Yield the cases; the arrays of a case are made when it is requested."""
    small = 50 if quick else 1
    ratings = made_up_ratings(1_000_209 // small, 6040, 3900)
    for dtype, target in ((np.float64, 4.5), (np.float32, 6.0)):
        X = one_hot(ratings.user, ratings.item, 6040, 3900, dtype)
        yield matvecs("one-hot", X, 5, {"scipy per class": target})
    yield matvecs("one-hot", movielens_100k(small)[0], 5, {"scipy per class": 4.0})
    rng = np.random.default_rng(0)
    n, d, stored = 100_000 // small, 10_000, 50
    X = sp.csr_array(
        (
            rng.standard_normal(n * stored),
            np.sort(rng.integers(0, d, (n, stored)), axis=1).ravel(),
            np.arange(0, n * stored + 1, stored),
        ),
        shape=(n, d),
    )
    X.sum_duplicates()
    yield matvecs("generic CSR", X, 10, {"scipy per class": 3.0})
    yield selection(7500 // small, 16, 26)
    for n_components in (0, 5):
        yield eigenvectors(n_components, small)


def movielens_100k(small: int) -> tuple[sp.csr_array, np.ndarray, str]:
    """One-hot rows, ratings and their source."""
    data = find("ml-100k") or stand_in("ml-100k")
    return data.one_hot()[::small], data.rating[::small], data.source


def row_bytes(X: sp.csr_array, m: int) -> float:
    """The bytes of one pass: indices, row starts, values unless they are known, and D."""
    pairs = bool((np.diff(X.indptr) == 2).all() and (X.data == 1).all())
    entry = 4 if pairs else 4 + X.dtype.itemsize
    return X.nnz * entry + X.shape[0] * (0 if pairs else 8) + 8 * X.shape[0] * m


def matvecs(kind: str, X: sp.csr_array, m: int, target: dict[str, float]) -> Case:
    n, d = X.shape
    rng = np.random.default_rng(0)
    D, B = rng.standard_normal((n, m)), rng.standard_normal((d, m))
    gammas = [Design(X, n_threads=t).gamma(D) for t in (1, 2)]
    columns = [np.ascontiguousarray(D[:, c]) for c in range(m)]
    vectors = [np.ascontiguousarray(B[:, c]) for c in range(m)]

    def per_class() -> np.ndarray:
        return np.array([X.T @ (D_c * (X @ h)) for D_c, h in zip(columns, vectors, strict=True)]).T

    def at_once() -> np.ndarray:
        return X.T @ (D * (X @ B))

    return Case(
        "Gamma mat-vecs",
        f"{kind} n={n} d={d} m={m} {X.dtype}",
        lambda t: gammas[t - 1].matvecs(B),
        {"scipy per class": per_class, "scipy, X @ B": at_once},
        target,
        bytes=row_bytes(X, m) + 16 * d * m,
        flops=4 * X.nnz * m + n * m,
        rtol=1e-5 if X.dtype == np.float32 else 1e-9,
    )


def selection(n: int, d: int, m: int) -> Case:
    """Forming Gamma and all m spectra, against the mat-vecs that Lanczos needs."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 16, (n, d)) * (2 / 15) - 1, rng.integers(0, m, n)
    X[:, :4] += 0.15 * y[:, None] / m
    D = np.full((n, m), 1 / m)
    D[np.arange(n), y] -= 1
    design = Design(X, fit_lower="augment")
    X1 = np.column_stack([np.ones(n), X])
    steps = dominant_eigenvectors(DenseGamma(as_matrix(X1), D), "lanczos", random_state=0).n_matvecs
    columns = [np.ascontiguousarray(D[:, c]) for c in range(m)]
    B = rng.standard_normal((d + 1, m))
    vectors = [np.ascontiguousarray(B[:, c]) for c in range(m)]

    def run(n_threads: int) -> object:
        design.n_threads = n_threads
        return dominant_eigenvectors(design.gamma(D))

    def per_class() -> None:
        for _ in range(steps):
            for D_c, h in zip(columns, vectors, strict=True):
                X1.T @ (D_c * (X1 @ h))

    def at_once() -> None:
        for _ in range(steps):
            X1.T @ (D * (X1 @ B))

    return Case(
        "one selection",
        f"dense n={n} d={d + 1} m={m}",
        run,
        {"numpy per class": per_class, "numpy, X @ B": at_once},
        {"numpy per class": 8.0},
        bytes=8 * n * (d + m),
        flops=n * (d + 1) * (d + 2) * m,  # the products of a symmetric matrix
        rtol=None,
        note=lambda: (
            "one selection: forming all Gamma_c and their spectra, against the mat-vecs alone of "
            f"the {steps} steps that Lanczos takes on the same problem (tol 5e-3)"
        ),
    )


def eigenvectors(n_components: int, small: int) -> Case:
    """Ordinal gradients as they occur in Algorithm 1, after some basis vectors."""
    X, rating, source = movielens_100k(small)
    n, d = X.shape
    Y = np.where(rating[:, None] <= np.arange(1, 5), 1.0, -1.0)
    design = Design(X, "anova")
    outputs = np.zeros(Y.shape)
    if n_components:
        *_, state = conditional_gradient(
            design, Y, alpha=10.0, n_components=n_components, random_state=0
        )
        outputs = design.outputs(state.H, state.V)
    D = BinaryLogistic().value_grad(Y, outputs)[1]
    m = D.shape[1]
    diagonal = (X * X).T @ D

    def operator(c: int) -> LinearOperator:
        D_c, diagonal_c = np.ascontiguousarray(D[:, c]), diagonal[:, c]
        product = lambda h: (X.T @ (D_c * (X @ h)) - diagonal_c * h) / 2  # noqa: E731
        return LinearOperator((d, d), matvec=product, dtype=np.float64)

    operators = [operator(c) for c in range(m)]
    start = np.random.default_rng(0).standard_normal(d)

    def ours(n_threads: int, tol: float) -> np.ndarray:
        design.n_threads = n_threads
        gamma = design.gamma(D)
        return np.abs(dominant_eigenvectors(gamma, tol=tol, each=True, random_state=0).values)

    def theirs(tol: float) -> np.ndarray:
        return np.array([abs(eigsh(op, 1, tol=tol, v0=start)[0][0]) for op in operators])

    true = np.array([np.abs(eigsh(op, 2, tol=1e-10, v0=start)[0]).max() for op in operators])
    tol = next(t for t in LADDER if (ours(1, t) >= QUALITY * true).all())
    their_tol = next(t for t in LADDER if (theirs(t) >= QUALITY * true).all())
    design.n_threads = 1
    n_matvecs = dominant_eigenvectors(design.gamma(D), tol=tol, each=True, random_state=0).n_matvecs
    return Case(
        "dominant eigenvectors",
        f"{source}, {n_components} bases, n={n} m={m}",
        lambda t: ours(t, tol),
        {"eigsh per output": lambda: theirs(their_tol)},
        {"eigsh per output": 6.0},
        bytes=n_matvecs * row_bytes(X, m),
        flops=n_matvecs * 4 * X.nnz * m,
        rtol=1 - QUALITY,
        note=lambda: (
            f"eigenvectors, {n_components} bases: each side at the loosest tolerance that reaches "
            f"{QUALITY} of every output's maximum (ours {tol:g}, {n_matvecs} passes; "
            f"eigsh {their_tol:g})"
        ),
    )
