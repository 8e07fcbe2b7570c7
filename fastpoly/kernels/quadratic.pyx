"""The inner problem of the proximal Newton method, by block coordinate descent over rows.

    minimise  <G, P - P0> + 1/2 sum_c (P - P0)_:c' B_c (P - P0)_:c + sum_r t_r ||p_r||

P (k, m), B (m, k, k) positive semi-definite. It never touches the n rows of the data. A row is
updated by the proximal step with its own curvature L_r = max_c B_crr,

    p_r <- prox_{t_r / L_r}(p_r - g_r / L_r),   then   g_j += B_:jr * (change of p_r) for all j.

B is stored (k, k, m) so that the loop over outputs is innermost.
"""

import numpy as np

from fastpoly.kernels.penalties cimport Penalty

from fastpoly.kernels.checks import as_float_array, as_output, as_weights


def descend(Penalty penalty, B, P, G, thresholds, double tol, int max_sweeps):
    """Sweep over the rows until a sweep changes little; P and G are updated in place.

    Parameters
    ----------
    penalty : Penalty
    B : ndarray, (k, k, m)
        B[i, j, c] = second derivative of output c in (i, j).
    P : ndarray, (k, m)
        The start; holds the solution afterwards.
    G : ndarray, (k, m)
        Gradient of the smooth part at P; kept up to date.
    thresholds : ndarray, (k,)
        t_r >= 0; 0 leaves a row unpenalised.
    tol : float
        Stop when sum_r L_r |change of p_r|^2 of a sweep is below tol times that of the first one.
    max_sweeps : int

    Returns
    -------
    int
        Sweeps made.
    """
    cdef const double[:, :, ::1] blocks = as_float_array(B, "B", (None, None, None))
    cdef Py_ssize_t k = blocks.shape[0], m = blocks.shape[2], r, j, c
    cdef double[:, ::1] p = as_output(P, "P", (k, m))
    cdef double[:, ::1] g = as_output(G, "G", (k, m))
    cdef const double[::1] t = as_weights(thresholds, "thresholds", k)
    cdef double[::1] row = np.empty(m + 1)
    cdef double[::1] curvature = np.asarray(blocks.base).diagonal().max(axis=0) if k else row
    cdef double L, moved, first = 0, change
    cdef int sweep = 0
    if blocks.shape[1] != k:
        raise ValueError(f"B must have shape (k, k, m), got {B.shape}")
    with nogil:
        for sweep in range(1, max_sweeps + 1):
            moved = 0
            for r in range(k):
                L = curvature[r]
                if L <= 0:
                    # A dead row: the smooth part does not depend on it.
                    if t[r] > 0:
                        for c in range(m):
                            p[r, c] = 0
                    continue
                for c in range(m):
                    row[c] = p[r, c] - g[r, c] / L
                if t[r] > 0:
                    penalty.row_prox(&row[0], t[r] / L, m)
                change = 0
                for c in range(m):
                    row[c] -= p[r, c]
                    p[r, c] += row[c]
                    change += row[c] * row[c]
                if change > 0:
                    moved += L * change
                    for j in range(k):
                        for c in range(m):
                            g[j, c] += blocks[r, j, c] * row[c]
            if sweep == 1:
                first = moved
            if moved <= tol * first:
                break
    return sweep
