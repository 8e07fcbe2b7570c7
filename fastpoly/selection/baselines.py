"""The exact maximum by enumeration, and the paper's simple methods: random, best data row.

The dual norm is a maximum over the vertices s of the penalty's unit ball, ||q||_* = max_s |s'q|:
unit vectors for l1, vectors of signs for l1/linf. So the best vector is the dominant eigenvector of
one of the matrices sum_c s_c Gamma_c. For l1/linf there are 2^(m-1) of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.selection.ascent import Floats, eigen_flops, forms_of

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only


def enumeration_flops(penalty: MatrixPenalty, m: int, d: int) -> float:
    """The approximate cost of `best_of_vertices`, in floating-point operations."""
    count = penalty.n_vertices(m)
    return np.inf if count is None else count * eigen_flops(m, d)


def best_of_vertices(G: Floats, penalty: MatrixPenalty, n_best: int = 1) -> tuple[Floats, float]:
    """Eigenvectors for the best vertices, and the exact maximum of the dual norm.

    Parameters
    ----------
    G : ndarray, (m, d, d)
    penalty : MatrixPenalty
        A penalty with vertices.
    n_best : int
        The number of vertices to take eigenvectors from; with 1, only the dominant one is taken.

    Returns
    -------
    vectors : ndarray, (r, d)
        The optimum first, then the eigenvectors of both ends of the next vertices.
    value : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import L1Linf
    >>> from fastpoly.selection.baselines import best_of_vertices
    >>> G = np.array([[[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> round(best_of_vertices(G, L1Linf())[1], 3)
    1.414
    """
    m, d, _ = G.shape
    count, block = penalty.n_vertices(m), max(1, BLOCK_DOUBLES // d**2)
    ends = np.empty((count, 2))
    for first in range(0, count, block):
        S = penalty.vertices(m, first, min(first + block, count))
        ends[first : first + len(S)] = np.linalg.eigvalsh(np.tensordot(S, G, 1))[:, [0, -1]]
    sizes = np.abs(ends).max(axis=1)
    best = np.argsort(-sizes, kind="stable")[:n_best]
    S = np.vstack([penalty.vertices(m, r, r + 1) for r in best])
    values, vectors = np.linalg.eigh(np.tensordot(S, G, 1))
    H = vectors[:, :, [0, -1]].transpose(0, 2, 1).reshape(-1, d)
    order = np.argsort(-np.abs(values[:, [0, -1]]).ravel(), kind="stable")
    return H[order[:1] if n_best == 1 else order], float(sizes[best[0]])


def best_row(gamma: Gamma, penalty: MatrixPenalty, data: Any) -> Floats:
    """The row of X with the largest dual norm when scaled to norm 1; one block at a time."""
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
    G = gamma.dense() if isinstance(gamma, ExplicitGamma) else None
    best, best_value = np.eye(1, gamma.d)[0], -1.0
    block = max(1, min(64, BLOCK_DOUBLES // gamma.d))
    for first in range(0, X.n, block):
        H = _rows(X, first, min(first + block, X.n))
        norms = np.linalg.norm(H, axis=1)
        H = H[norms > 0] / norms[norms > 0, None]
        if not len(H):
            continue
        Q = forms_of(G, H) if G is not None else np.array([gamma.forms(h) for h in H])
        values = penalty.dual_norms(Q)
        if values.max() > best_value:
            best, best_value = H[values.argmax()], values.max()
    return best


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
