"""Upper bounds on the largest dual norm of q_c(h) = h' Gamma_c h over |h| <= 1, from spectra.

With |q_c| <= sigma_c, the largest |eigenvalue| of Gamma_c, and the ratios a = max ||q||_* / |q|_1
and b = max ||q||_* / |q|_2 of the penalty,

    ||q||_* <= ||sigma||_*
    ||q||_* <= a |q|_1,    |q|_1   <= h' (sum_c |Gamma_c|) h
    ||q||_* <= b |q|_2,    |q|_2^2 <= sum_c |Gamma_c h|^2 = h' (sum_c Gamma_c^2) h,
                           |q|_2   <= the largest singular value of the map hh' -> q.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastpoly.selection.ascent import Floats

if TYPE_CHECKING:
    from fastpoly.kernels.penalties import MatrixPenalty  # a protocol, known to type checkers only


def upper_bound(G: Floats, spectra: Floats, vectors: Floats, penalty: MatrixPenalty) -> float:
    """The smallest of the bounds above.

    Parameters
    ----------
    G : ndarray, (m, d, d)
        Symmetric matrices.
    spectra : ndarray, (m, d)
        Their eigenvalues.
    vectors : ndarray, (m, d, d)
        Their eigenvectors, as columns.
    penalty : MatrixPenalty

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import L1L2
    >>> from fastpoly.selection.bounds import upper_bound
    >>> G = np.array([np.diag([3.0, 0.0]), np.diag([0.0, 4.0])])
    >>> upper_bound(G, *np.linalg.eigh(G), L1L2())
    4.0
    """
    m, d, _ = G.shape
    sizes = np.abs(spectra)
    largest = float(penalty.dual_norms(sizes.max(axis=1)[None])[0])
    if m == 1 or penalty.separable:
        return largest
    to_sum, to_euclidean = penalty.dual_ratios(m)
    roots = (vectors * np.sqrt(sizes)[:, None, :]).transpose(1, 0, 2).reshape(d, m * d)
    tall, flat = G.reshape(m * d, d), G.reshape(m, d * d)
    small = flat @ flat.T if m <= d * d else flat.T @ flat
    squared = min(_top_eigenvalue(tall.T @ tall), _top_eigenvalue(small))
    by_sum = to_sum * _top_eigenvalue(roots @ roots.T)
    return float(min(largest, by_sum, to_euclidean * np.sqrt(squared)))


def _top_eigenvalue(S: Floats) -> float:
    return float(np.linalg.eigvalsh(S)[-1])
