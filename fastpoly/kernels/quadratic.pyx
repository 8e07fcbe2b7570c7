"""A sweep of block coordinate descent over the model of a Newton step.

The output layer V (k, m) is laid out as x (groups, k q), with groups x q = m outputs; the outputs
of a group are next to each other in every row. B (groups, k q, k q) has the second derivatives
within a group: there is one group of all outputs if they interact, else one per output. Rows are
updated one after the other, by a proximal step with their own curvature L_r >= the largest
eigenvalue of B_rr,

    v_r <- prox_{t_r / L_r}(v_r - g_r / L_r),   then   g += B (change of v_r).
"""

import numpy as np

from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.memory cimport overlap
from fastpoly.kernels.penalties cimport Penalty

from fastpoly.kernels.checks import as_float_array, as_output

cdef const gamma_loops* loops = choose_gamma_loops()


def sweep(Penalty penalty not None, B, curvature, thresholds, x, g):
    """Update every row once; x and the gradient g of the smooth part, (groups, k q), change.

    B is symmetric. `curvature` and `thresholds` (k,) are L_r and t_r: a row with L_r = 0 has no
    influence on the smooth part, and one with t_r = 0 has no penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import get_penalty
    >>> from fastpoly.kernels.quadratic import sweep
    >>> x, g = np.zeros((1, 1)), np.array([[-6.0]])
    >>> sweep(get_penalty("l1"), np.full((1, 1, 1), 2.0), [2.0], [2.0], x, g)
    >>> x, g
    (array([[2.]]), array([[-2.]]))
    """
    cdef const double[:, :, ::1] b = as_float_array(B, "B", (None,) * 3, finite=False)
    cdef const double[::1] own = as_float_array(curvature, "curvature", (None,), finite=False)
    cdef Py_ssize_t groups = b.shape[0], n = b.shape[1], k = own.shape[0], q = n // max(k, 1)
    cdef const double[::1] t = as_float_array(thresholds, "thresholds", (k,))
    if b.shape[2] != n or k * q != n:
        raise ValueError(f"B must have shape (groups, k q, k q) with k = {k}, got {np.shape(B)}")
    if x is None or g is None:
        raise TypeError("x and g must be arrays, got None")
    cdef double[:, ::1] v = as_output(x, "x", (groups, n)), s = as_output(g, "g", (groups, n))
    cdef Py_ssize_t r, c, j, i, size = groups * n
    if not size:
        return
    if (
        overlap(&v[0, 0], size, &s[0, 0], size)
        or overlap(&v[0, 0], size, &b[0, 0, 0], size * n)
        or overlap(&s[0, 0], size, &b[0, 0, 0], size * n)
    ):
        raise ValueError("x, g and B must not share memory; pass copies")
    cdef double change
    cdef double[::1] row = np.empty(groups * q)
    with nogil:
        for r in range(k):
            if not (own[r] > 0 or t[r] > 0):
                continue  # nothing depends on this row
            for c in range(groups * q):
                j, i = c // q, r * q + c % q
                row[c] = v[j, i] - s[j, i] / own[r] if own[r] > 0 else 0
            if own[r] > 0 and t[r] > 0:
                penalty.row_prox(&row[0], t[r] / own[r], groups * q)
            for c in range(groups * q):
                j, i = c // q, r * q + c % q
                change = row[c] - v[j, i]
                v[j, i] = row[c]
                if change != 0:
                    loops.add_multiple(&b[j, i, 0], n, change, &s[j, 0])
