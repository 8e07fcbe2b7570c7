"""Row penalties Omega(V) = sum_r weight_r ||v_r||, V (k, m): one row of V, one basis vector.

==========  ============  ============  ==================================  ====================
name        ||v||         ||g||_*       prox_t(v)                           f_p(q)
==========  ============  ============  ==================================  ====================
l1          sum_c |v_c|   max_c |g_c|   v - clip(v, -t, t)                  max_c |q_c|
l1/l2       |v|_2         |g|_2         v max(0, 1 - t / |v|_2)             sum_c q_c^2
l1/linf     max_c |v_c|   sum_c |g_c|   clip(v, -s, s), level s below       sum_c huber(q_c)
==========  ============  ============  ==================================  ====================

The level s >= 0 solves sum_c max(|v_c| - s, 0) = t (s = 0 when t >= |v|_1). A penalty is a class
with the `row_*` methods and an entry in `PENALTIES`; the methods for matrices, projections and the
FISTA step follow from them.
"""

from collections import namedtuple

import numpy as np

from libc.math cimport NAN, fabs, sqrt
from libc.string cimport memset

from fastpoly.kernels.checks import as_float_array, as_output, as_positive
from fastpoly.kernels.smooth_forms import Balanced, Box, Signs
from fastpoly.kernels.verbs import CompletePenalty, ratios_of, reduce_object

from fastpoly.kernels.memory cimport overlap

include "penalties_rows.pxi"
include "penalties_base.pxi"
include "penalties_fista.pxi"


cdef class L1(Penalty):
    """Sum of the absolute entries: rows and entries become zero."""

    name = "l1"
    smooth_form = Signs()
    separable = True

    def dual_ratios(self, m):
        """max_c |q_c| is at most |q|_2."""
        return 1.0, 1.0

    def n_vertices(self, m):
        return m

    def vertices(self, m, first=0, last=None):
        """The unit vectors."""
        return np.eye(m)[first:last]

    def smooth_model(self, V, level):
        """Level 1 is the upper bound |v + u| <= (v + u)^2 / (2 |v|) + |v| / 2 for every entry."""
        V = as_float_array(V, "V", (None, None))
        return np.sign(V), level * inverse(np.abs(V)), np.zeros(V.shape)

    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil:
        return sum_abs(v, m)

    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil:
        return max_abs(g, m)

    cdef void row_polar(self, const double* g, double* v, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t best = argmax_abs(g, m)
        memset(v, 0, m * sizeof(double))
        v[best] = sign(g[best])

    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil:
        return soft_threshold(v, t, m)

    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil:
        cdef double total = sum_above(v, t, m, slope)
        slope[0] = -slope[0]
        return total

    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil:
        self.row_polar(q, w, m)
        return max_abs(q, m)


cdef class L1L2(Penalty):
    """Sum of the Euclidean norms of the rows: whole rows become zero."""

    name = "l1/l2"
    smooth_form = Balanced()

    def dual_ratios(self, m):
        """|q|_2 is at most |q|_1."""
        return 1.0, 1.0

    def smooth_model(self, V, level):
        """Level 1 is the bound ||v + u|| <= |v + u|^2 / (2 ||v||) + ||v|| / 2 for every row."""
        V = as_float_array(V, "V", (None, None))
        d = inverse(self.row_norms(V))[:, None]
        finite = np.where(np.isfinite(d), d, 0.0)
        g = V * finite
        return g, np.repeat(d, V.shape[1], axis=1), g * np.sqrt((1 - level) * finite)

    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil:
        return norm2(v, m)

    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil:
        return norm2(g, m)

    cdef void row_polar(self, const double* g, double* v, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double norm = norm2(g, m)
        for c in range(m):
            v[c] = g[c] / norm if norm > 0 else 0

    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double norm = norm2(v, m), scale
        if norm <= t:
            memset(v, 0, m * sizeof(double))
            return 0
        scale = (norm - t) / norm
        for c in range(m):
            v[c] *= scale
        return norm - t

    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil:
        cdef double norm = norm2(v, m)
        slope[0] = -1 if norm > t else 0
        return norm - t if norm > t else 0

    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double total = 0
        for c in range(m):
            total += q[c] * q[c]
            w[c] = 2 * q[c]
        return total


cdef class L1Linf(Penalty):
    """Sum of the largest absolute entries of the rows: whole rows become zero."""

    name = "l1/linf"
    smooth_form = Box()

    def n_vertices(self, m):
        return 2 ** (m - 1)

    def vertices(self, m, first=0, last=None):
        """The vectors of signs whose first sign is +."""
        last = min(self.n_vertices(m) if last is None else last, self.n_vertices(m))
        return 1.0 - 2.0 * (np.arange(first, last)[:, None] >> np.arange(m)[::-1] & 1)

    def smooth_model(self, V, level):
        """The model of min_s s - mu sum_c log(s^2 - v_c^2), the norm of an interior-point method.

        mu is chosen such that the best s is (1 + level / 10) ||v||. One entry is |v|; see `L1`.
        """
        V = as_float_array(V, "V", (None, None))
        if V.shape[1] == 1:
            return L1().smooth_model(V, level)
        scale = inverse(self.row_norms(V))[:, None]  # the formulas are for rows of norm 1
        U = V * np.where(np.isfinite(scale), scale, 0.0)
        s = 1 + 0.1 * level
        room = (0.1 * level + (1 - np.abs(U))) * (s + np.abs(U))  # s^2 - u^2
        mu = 0.5 / (s / room).sum(axis=1, keepdims=True)
        d = 2 * mu * (s * s + U * U) / room**2
        a = 4 * mu * s * U / (room**2 * np.sqrt(d.sum(axis=1, keepdims=True)))
        return 2 * mu * U / room, d * scale, a * np.sqrt(np.where(U == 0, 0.0, scale))

    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil:
        return max_abs(v, m)

    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil:
        return sum_abs(g, m)

    cdef void row_polar(self, const double* g, double* v, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            v[c] = sign(g[c])

    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double s = level(v, t, m)
        if s == 0:
            memset(v, 0, m * sizeof(double))  # and no -0.0
        for c in range(m):
            v[c] = clip(v[c], s)
        return s

    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil:
        # t = sum_c max(|v_c| - s, 0) is convex and decreasing in s, so s is convex and decreasing
        # in t. The right derivative counts the ties |v_c| = s, which move as soon as t grows.
        cdef double s = level(v, t, m)
        cdef Py_ssize_t count = 0, c
        for c in range(m):
            count += fabs(v[c]) >= s
        slope[0] = -1.0 / count if s > 0 else 0
        return s

    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double total = 0
        for c in range(m):
            w[c] = clip(q[c], 1)
            total += w[c] * (q[c] - 0.5 * w[c])  # q^2 / 2 inside, |q| - 1/2 outside
        return total


def inverse(sizes):
    """1 / sizes, infinite where that is out of range."""
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / sizes


PENALTIES = {"l1": L1, "l1/l2": L1L2, "l1/linf": L1Linf}


def get_penalty(penalty):
    """The penalty of this name, or `penalty` itself, with all methods of a penalty.

    Parameters
    ----------
    penalty : str or object
        A key of `PENALTIES`, a `Penalty`, or any object with these methods of `Penalty`:

        - ``value(V, weights=None)``, ``dual_norm(G, weights=None)``: Omega and its dual norm,
        - ``prox(V, t, weights=None, out=None)``: for the penalized form (alpha),
        - ``project(V, tau, weights=None, metric=None, out=None)``: for the constrained form (tau),
        - ``criterion(q)``: for the selection of basis vectors,
        - ``polar(q)``: only for ``refit=None`` and ``smooth_form``,
        - ``smooth_form``: optional; an object of `fastpoly.kernels.smooth_forms`, with which both
          layers can be fitted together,
        - ``row_norms(V)``, ``dual_norms(Q)``, ``slopes(Q, threshold)``: optional; all rows at once,
          which is faster.

    Returns
    -------
    Penalty or object
        An object that lacks optional methods gets defaults for them; see `fastpoly.kernels.verbs`.

    Examples
    --------
    >>> from fastpoly.kernels.penalties import get_penalty
    >>> get_penalty("l1")
    L1()
    """
    if isinstance(penalty, str):
        if penalty not in PENALTIES:
            raise ValueError(f"unknown penalty {penalty!r}; known: {', '.join(PENALTIES)}")
        return PENALTIES[penalty]()
    if isinstance(penalty, type):
        raise TypeError(f"penalty must be an object, got the class {penalty.__name__}; call it")
    verbs = ("value", "dual_norm", "prox", "project", "criterion")
    missing = [verb for verb in verbs if not callable(getattr(penalty, verb, None))]
    if missing:
        raise TypeError(
            f"penalty must be one of {', '.join(PENALTIES)} or an object with the methods "
            f"{', '.join(verbs)}; {penalty!r} lacks {', '.join(missing)}"
        )
    return CompletePenalty.of(penalty)


def complete_penalty(penalty):
    """`penalty` with all verbs: its own, and defaults for the optional ones that it lacks.

    Examples
    --------
    >>> from fastpoly.kernels.penalties import L1L2, complete_penalty
    >>> complete_penalty(L1L2())
    L1L2()
    """
    return CompletePenalty.of(penalty)
