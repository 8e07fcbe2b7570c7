"""The methods that the paper compares with "refine", as oracles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.selection.ascent import Floats, ascend, best_of_vertices, unit
from fastpoly.selection.oracle import Request, Selection, forms_at, named
from fastpoly.selection.refine import eigenvectors, explore, is_dense, is_eigenproblem

MOST_EXACT_OUTPUTS = 20


@named("l1")
def l1(request: Request) -> Selection:
    """Eigenvectors of single outputs by |eigenvalue|, the largest first; optimal for l1."""
    return eigenvectors(request)


@named("random+refine")
def random_refine(request: Request) -> Selection:
    """Where the ascent from one random vector ends."""
    H, gamma = random(request).H, request.gamma
    how = request.penalty, request.tol, request.max_iter
    if is_dense(request):
        return Selection.of(ascend(gamma.dense(), H, *how).Y[:1])
    points, passes = explore(gamma, H, *how)
    return Selection.of(points.Y[:1], n_matvecs=passes)


@named("random")
def random(request: Request) -> Selection:
    """One random vector."""
    return Selection.of(unit(request.rng.standard_normal(request.gamma.d))[None])


@named("best_data")
def best_data(request: Request) -> Selection:
    """The row of X with the largest dual norm when scaled to norm 1; one block at a time."""
    gamma, data = request.gamma, request.data
    if data is None:
        data = getattr(gamma, "X", None)
    if data is None:
        raise ValueError(
            "method 'best_data' needs the rows of X, which explicit matrices do not hold; "
            "pass data=design"
        )
    data = getattr(data, "matrix", data)
    X = data if isinstance(data, Matrix) else as_matrix(data)
    if X.d != gamma.d:
        raise ValueError(f"data must have {gamma.d} features, got {X.d}; pass data=design")
    best, best_value = np.eye(1, gamma.d), -1.0
    block = max(1, min(64, BLOCK_DOUBLES // gamma.d))
    for first in range(0, X.n, block):
        H = _rows(X, first, min(first + block, X.n))
        norms = np.linalg.norm(H, axis=1)
        H = H[norms > 0] / norms[norms > 0, None]
        values = request.penalty.dual_norms(forms_at(gamma, H)) if len(H) else np.zeros(0)
        if values.max(initial=-1.0) > best_value:
            best, best_value = H[values.argmax()][None], values.max()
    return Selection.of(best)


def _rows(X: Matrix, first: int, last: int) -> Floats:
    """Rows first..last-1 as the kernels see them, dense, (last - first, d)."""
    H = np.zeros((last - first, X.d))
    H[:, : X.augment] = 1
    if X.sparse:
        values, indices, indptr = X.arrays
        entries = slice(indptr[first], indptr[last])
        of_row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
        H[of_row, indices[entries] + X.augment] = values[entries]
    else:
        H[:, X.augment :] = X.rows(slice(first, last))
    return H


@named("exact")
def exact(request: Request) -> Selection:
    """The optimum and its value, by enumeration of the vertices of the unit ball."""
    gamma, penalty = request.gamma, request.penalty
    if penalty.n_vertices(gamma.m) is None:
        raise ValueError(f"method 'exact' is for the penalties l1 and l1/linf, got {penalty!r}")
    if is_eigenproblem(request):
        request = replace(request, gamma=ExplicitGamma(gamma.dense()), thorough=True)
        return eigenvectors(request)._replace(vectors=None)
    if gamma.m > MOST_EXACT_OUTPUTS:
        raise ValueError(
            f"method 'exact' solves 2^(m-1) eigenproblems and takes at most {MOST_EXACT_OUTPUTS} "
            f"outputs, got {gamma.m}; use 'refine'"
        )
    n_best = 1 if request.n_vectors == 1 else 2 * request.n_vectors
    H, bound = best_of_vertices(gamma.dense(), penalty, n_best)
    return Selection.of(H, bound=bound, confirmed=True)
