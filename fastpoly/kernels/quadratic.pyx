"""The inner problem of the proximal Newton method, by block coordinate descent over rows.

    minimize  <G, P - P0> + 1/2 <P - P0, B (P - P0)> + sum_r t_r ||p_r||

P (k, m). It never touches the n rows of the data. B is positive semi-definite and comes in two
forms: one k x k block an output, stored (k, k, m) so that the loop over outputs is innermost; or,
where outputs interact, all of it, stored (k, m, k, m). A row is updated by the proximal step with
its own curvature L_r, the largest eigenvalue of B_rr,

    p_r <- prox_{t_r / L_r}(p_r - g_r / L_r),   then   g_j += B_jr (change of p_r) for all j.
"""

import numpy as np

from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.memory cimport overlap
from fastpoly.kernels.penalties cimport Penalty

from fastpoly.kernels.checks import as_float_array, as_output, as_weights

cdef const gamma_loops* loops = choose_gamma_loops()


cdef class RowDescent:
    """Sweeps over the rows of one model, whose arrays are checked once.

    Parameters
    ----------
    penalty : Penalty
    B : ndarray, (k, k, m) or (k, m, k, m)
        B[i, j, c] or B[i, e, j, c]: second derivatives in p_ic and p_jc, or p_ie and p_jc. Its
        memory is shared: do not change it while the object is in use.
    thresholds : array-like, (k,)
        t_r >= 0; 0 leaves a row unpenalized.

    Attributes
    ----------
    curvature : ndarray, (k,)
        L_r, the largest eigenvalue of every B_rr.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import get_penalty
    >>> from fastpoly.kernels.quadratic import RowDescent
    >>> P, G = np.zeros((1, 1)), np.array([[-6.0]])
    >>> RowDescent(get_penalty("l1"), np.full((1, 1, 1), 2.0), [2.0]).sweep(P, G)
    >>> P, G
    (array([[2.]]), array([[-2.]]))
    """

    cdef readonly object curvature
    cdef Penalty penalty
    cdef const double[:, :, ::1] blocks  # (k, 1 or m, k m)
    cdef const double[::1] own, thresholds
    cdef double[::1] row
    cdef Py_ssize_t k, m
    cdef bint coupled

    def __init__(self, Penalty penalty not None, B, thresholds):
        B = as_float_array(B, "B", (None,) * np.ndim(B), finite=False)
        shape = B.shape[:2] + (B.shape[:2] if B.ndim == 4 else B.shape[2:])
        if B.ndim not in (3, 4) or B.shape != shape or B.shape[0] != B.shape[B.ndim - 2]:
            raise ValueError(f"B must have shape (k, k, m) or (k, m, k, m), got {B.shape}")
        self.curvature = _row_curvature(B)
        self.own = as_float_array(self.curvature, "curvature", (B.shape[0],), finite=False)
        self.penalty, self.coupled = penalty, B.ndim == 4
        self.k, self.m = B.shape[0], B.shape[B.ndim - 1]
        if thresholds is None:
            raise TypeError("thresholds must be an array, got None")
        self.thresholds = as_weights(thresholds, "thresholds", self.k)
        self.row = np.empty(self.m + 1)
        self.blocks = B.reshape(self.k, self.m if self.coupled else 1, self.k * self.m)

    def sweep(self, P, G):
        """Update every row once; P and G (k, m), the gradient of the smooth part, change in place."""
        if self.penalty is None:
            raise ValueError("this RowDescent was never initialized")
        if P is None or G is None:
            raise TypeError("P and G must be arrays, got None")
        cdef double[:, ::1] p = as_output(P, "P", (self.k, self.m))
        cdef double[:, ::1] g = as_output(G, "G", (self.k, self.m))
        cdef Py_ssize_t r, size = self.k * self.m
        if not size:
            return
        cdef const double* B = &self.blocks[0, 0, 0]
        if (
            overlap(&p[0, 0], size, &g[0, 0], size)
            or overlap(&p[0, 0], size, B, size * self.k * self.blocks.shape[1])
            or overlap(&g[0, 0], size, B, size * self.k * self.blocks.shape[1])
        ):
            raise ValueError("P, G and B must not share memory; pass copies")
        with nogil:
            for r in range(self.k):
                self.update(r, self.thresholds[r], &p[r, 0], &g[0, 0])

    cdef void update(self, Py_ssize_t r, double t, double* p, double* g) noexcept nogil:
        """The proximal step of row r."""
        cdef Py_ssize_t c, m = self.m
        cdef double L = self.own[r]
        cdef bint moved = False
        cdef double* row = &self.row[0]
        if L <= 0:
            # A dead row: the smooth part does not depend on it.
            if t > 0:
                for c in range(m):
                    p[c] = 0
            return
        for c in range(m):
            row[c] = p[c] - g[r * m + c] / L
        if t > 0:
            self.penalty.row_prox(row, t / L, m)
        for c in range(m):
            row[c] -= p[c]
            p[c] += row[c]
            moved |= row[c] != 0
        if moved and not self.coupled:
            loops.add_scaled(&self.blocks[r, 0, 0], self.k, m, row, g)
        elif moved:
            for c in range(m):
                if row[c] != 0:
                    loops.add_multiple(&self.blocks[r, c, 0], self.k * m, row[c], g)


def _row_curvature(B):
    """The largest eigenvalue of every B_rr, (k,)."""
    k = B.shape[0]
    rows = np.arange(k)
    if not k:
        return np.empty(0)
    if B.ndim == 3:
        return B[rows, rows].max(axis=1)
    return np.linalg.eigvalsh(B[rows, :, rows, :]).max(axis=1)
