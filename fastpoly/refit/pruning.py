"""Merging of nearly parallel basis vectors.

Close to the optimum, the next best vector is often almost one that the model already has. Two such
vectors take two places and make the refit ill-conditioned, and their mean is mostly better:
v1 h1h1' + v2 h2h2' is (v1 + v2) hh' plus a little of tt' at the expense of hh', where t is
orthogonal to h, and at the optimum no direction is worth more than h.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# 1 - |cosine| below which two vectors are merged: an angle of 2.6 degrees.
PARALLEL = 1e-3


def merge_parallel(H: Floats, V: Floats) -> tuple[NDArray[np.bool_], Floats, Floats] | None:
    """The model with every bundle of nearly parallel basis vectors replaced by its mean.

    Parameters
    ----------
    H : ndarray, (k, d)
        Basis vectors, none of them zero.
    V : ndarray, (k, m)

    Returns
    -------
    kept : ndarray of bool, (k,)
        The rows that stay as they are; they come first.
    H, V : ndarray
        Fewer rows; the new ones have norm 1. The norm of V, by rows, does not grow.

    None when no two are parallel.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.refit.pruning import merge_parallel
    >>> H = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1e-9]])
    >>> kept, H, V = merge_parallel(H, np.array([[1.0], [2.0], [3.0]]))
    >>> kept, abs(H.round(6)), V
    (array([False,  True, False]), array([[0., 1.],
           [1., 0.]]), array([[2.],
           [4.]]))
    """
    norms = np.linalg.norm(H, axis=1)
    if len(H) < 2 or not norms.all():
        return None
    U = H / norms[:, None]
    cosines = U @ U.T
    close = np.triu(np.abs(cosines) > 1 - PARALLEL, 1)
    if not close.any():
        return None
    kept = np.ones(len(H), dtype=bool)
    weights = np.abs(V).sum(axis=1) * norms**2
    vectors, rows = [], []
    for r in range(len(H)):
        bundle = np.flatnonzero(close[r] & kept)
        if not kept[r] or not bundle.size:
            continue
        bundle = np.append(r, bundle)
        kept[bundle] = False
        mean = (weights[bundle] * np.sign(cosines[r, bundle])) @ U[bundle]
        vectors.append(mean / np.linalg.norm(mean))
        rows.append(norms[bundle] ** 2 @ V[bundle])
    return kept, np.vstack([H[kept], *vectors]), np.vstack([V[kept], *rows])
