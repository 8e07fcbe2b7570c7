"""The inner problem of the proximal Newton method, by block coordinate descent over rows.

    minimise  <G, P - P0> + 1/2 <P - P0, B (P - P0)> + sum_r t_r ||p_r||

P (k, m). It never touches the n rows of the data. B is positive semi-definite and comes in two
forms: one k x k block an output, stored (k, k, m) so that the loop over outputs is innermost; or,
where outputs interact, all of it, stored (k, m, k, m). A row is updated by the proximal step with
its own curvature L_r, the largest eigenvalue of B_rr,

    p_r <- prox_{t_r / L_r}(p_r - g_r / L_r),   then   g_j += B_jr (change of p_r) for all j.
"""

import numpy as np

from fastpoly.kernels.penalties cimport Penalty

from fastpoly.kernels.checks import as_float_array, as_output, as_weights


cdef inline void add(double* g, double t, const double* b, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        g[i] += t * b[i]


def descend(Penalty penalty not None, B, P, G, thresholds, curvature, int n_sweeps=1):
    """Sweep over the rows; P and G are updated in place.

    Parameters
    ----------
    penalty : Penalty
    B : ndarray, (k, k, m) or (k, m, k, m)
        B[i, j, c] or B[i, e, j, c]: second derivatives in p_ic and p_jc, or p_ie and p_jc.
    P : ndarray, (k, m)
        The start; holds the solution afterwards.
    G : ndarray, (k, m)
        Gradient of the smooth part at P; kept up to date.
    thresholds : ndarray, (k,)
        t_r >= 0; 0 leaves a row unpenalised.
    curvature : ndarray, (k,)
        L_r, as `row_curvature` gives them.
    n_sweeps : int

    Returns
    -------
    float
        sum_r L_r |change of p_r|^2 of the last sweep.
    """
    B = as_float_array(B, "B", (None,) * np.ndim(B), finite=False)
    shape = B.shape[:2] + (B.shape[:2] if B.ndim == 4 else B.shape[2:])
    if B.ndim not in (3, 4) or B.shape != shape or B.shape[0] != B.shape[B.ndim - 2]:
        raise ValueError(f"B must have shape (k, k, m) or (k, m, k, m), got {B.shape}")
    cdef bint coupled = B.ndim == 4
    cdef Py_ssize_t k = B.shape[0], m = B.shape[B.ndim - 1], r, j, c, e, size = k * m
    cdef const double[:, :, ::1] blocks = B.reshape(k, m if coupled else 1, size)
    cdef double[:, ::1] p = as_output(P, "P", (k, m))
    cdef double[:, ::1] g = as_output(G, "G", (k, m))
    if thresholds is None or curvature is None:
        raise TypeError("thresholds and curvature must be arrays, got None")
    if any(np.may_share_memory(a, b) for a, b in ((P, G), (P, B), (G, B))):
        raise ValueError("P, G and B must not share memory; pass copies")
    cdef const double[::1] t = as_weights(thresholds, "thresholds", k)
    cdef double[::1] row = np.empty(m + 1)
    cdef const double[::1] own = as_weights(curvature, "curvature", k)
    cdef double L, moved = 0, change
    cdef const double* block
    cdef int sweep
    with nogil:
        for sweep in range(n_sweeps):
            moved = 0
            for r in range(k):
                L = own[r]
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
                if change == 0:
                    continue
                moved += L * change
                if coupled:
                    for e in range(m):
                        if row[e] != 0:
                            add(&g[0, 0], row[e], &blocks[r, e, 0], size)
                else:
                    block = &blocks[r, 0, 0]
                    for j in range(k):
                        for c in range(m):
                            g[j, c] += block[j * m + c] * row[c]
    return moved


def row_curvature(B):
    """The largest eigenvalue of every B_rr, (k,)."""
    k = B.shape[0]
    rows = np.arange(k)
    if not k:
        return np.empty(0)
    if B.ndim == 3:
        return B[rows, rows].max(axis=1)
    return np.linalg.eigvalsh(B[rows, :, rows, :]).max(axis=1)
