"""Row penalties Omega(V) = sum_r weight_r ||v_r||, V (k, m): one row of V, one basis vector.

==========  ============  ============  ==================================  ====================
name        ||v||         ||g||_*       prox_t(v)                           f_p(q)
==========  ============  ============  ==================================  ====================
l1          sum_c |v_c|   max_c |g_c|   v - clip(v, -t, t)                  max_c |q_c|
l1/l2       |v|_2         |g|_2         v max(0, 1 - t / |v|_2)             sum_c q_c^2
l1/linf     max_c |v_c|   sum_c |g_c|   clip(v, -s, s), level s below       sum_c huber(q_c)
==========  ============  ============  ==================================  ====================

The level s >= 0 solves sum_c max(|v_c| - s, 0) = t (s = 0 when t >= |v|_1). A penalty is a class
with the `row_*` methods and a line in `PENALTIES`; matrices, projections and the FISTA step follow.
"""

from collections import namedtuple

import numpy as np

from libc.math cimport NAN, fabs, sqrt
from libc.string cimport memset

from fastpoly.kernels.checks import as_float_array, as_output, as_positive
from fastpoly.kernels.pickling import reduce_object
from fastpoly.kernels.smooth_forms import Balanced, Box, Signs

from fastpoly.kernels.memory cimport overlap

include "penalties_rows.pxi"


cdef class Penalty:
    """Base of the penalties; use a subclass. All are stateless, picklable and equal by class.

    A subclass with parameters defines ``__eq__`` and ``__hash__`` anew, and if it keeps them in C
    attributes ``__reduce__`` too, without which it can be neither pickled nor copied.

    `weights` (k,) are positive, None for ones. Inputs are checked and never changed, unless one of
    them is also `out`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import get_penalty
    >>> penalty = get_penalty("l1/l2")
    >>> V = np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> penalty.value(V)
    5.5
    >>> penalty.prox(V, 1.0)
    array([[2.4, 3.2],
           [0. , 0. ]])
    """

    name = "abstract"
    smooth_form = None  # how H and V descend together; None: only the output layer can be fitted

    def __init__(self):
        if type(self) is Penalty:
            raise TypeError(f"Penalty is abstract; use one of {', '.join(PENALTIES)}")

    def __reduce__(self):
        return reduce_object(self, Penalty)

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def __repr__(self):
        return f"{type(self).__name__}()"

    # A subclass without one of these shows as NaN, not as a plausible number.
    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil:
        return NAN

    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil:
        return NAN

    cdef void row_polar(self, const double* g, double* v, Py_ssize_t m) noexcept nogil:
        fill_nan(v, m)

    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil:
        return fill_nan(v, m)

    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil:
        slope[0] = NAN
        return NAN

    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil:
        return fill_nan(w, m)

    cdef double sum_rows(
        self, const double* V, const double* b, Py_ssize_t k, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t r
        cdef double total = 0
        for r in range(k):
            total += weight(b, r) * self.row_norm(V + r * m, m)
        return total

    cdef double project_rows(
        self, double* V, double tau, const double* b, const double* s, Py_ssize_t k, Py_ssize_t m
    ) noexcept nogil:
        # By Lagrange, u_r = prox_{theta s_r b_r}(v_r) where theta >= 0 is the root of
        #     phi(theta) = sum_r b_r ||prox_{theta s_r b_r}(v_r)|| - tau.
        # phi is convex and decreasing, so Newton steps from theta = 0 stay left of the root, and
        # as phi is piecewise linear they reach it. phi * |phi'| falls at least fourfold per step
        # (phi+/phi + phi'+/phi' <= 1), which makes the cap generous.
        cdef Py_ssize_t r, c
        cdef double theta = 0, best = 0, total = self.sum_rows(V, b, k, m)
        cdef double slope, row_slope, shrunk, step, scale
        if total <= tau:
            return total
        for _ in range(500):
            total = slope = 0
            for r in range(k):
                shrunk = self.row_shrunk(V + r * m, threshold(theta, b, s, r), m, &row_slope)
                if shrunk != 0:
                    total += weight(b, r) * shrunk
                    slope += weight(b, r) * threshold(1, b, s, r) * row_slope
            if total > 0:
                best = theta  # past the root by rounding alone, theta may leave nothing to scale
            step = (tau - total) / slope if slope < 0 else 0
            if not theta + step > theta:
                break
            theta += step
        if total != total:
            return NAN
        total = 0
        for r in range(k):
            total += weight(b, r) * self.row_prox(V + r * m, threshold(best, b, s, r), m)
        # phi(theta) = 0 up to the rounding of theta: a last scaling meets the constraint.
        scale = tau / total if total > 0 else 1
        for r in range(k):
            if weight(b, r) > 0:
                for c in range(m):
                    V[r * m + c] *= scale
        return tau if total > 0 else 0

    def row_norms(self, V):
        """Norms of the rows, (k,)."""
        cdef Py_ssize_t r
        cdef const double[:, ::1] v = as_float_array(V, "V", (None, None))
        out = np.empty(v.shape[0])
        cdef double[::1] norms = out
        cdef const double* data = first(v)
        for r in range(v.shape[0]):
            norms[r] = self.row_norm(data + r * v.shape[1], v.shape[1])
        return out

    def value(self, V, weights=None):
        """Omega(V) = sum_r weight_r ||v_r||."""
        cdef const double[:, ::1] v = as_float_array(V, "V", (None, None))
        cdef const double[::1] b = positive_rows(weights, "weights", v.shape[0])
        return self.sum_rows(first(v), first_of(b), v.shape[0], v.shape[1])

    def dual_norm(self, G, weights=None):
        """Omega_*(G) = max_r ||g_r||_* / weight_r (0 without rows)."""
        cdef Py_ssize_t r
        cdef const double[:, ::1] g = as_float_array(G, "G", (None, None))
        cdef const double[::1] b = positive_rows(weights, "weights", g.shape[0])
        cdef const double* data = first(g)
        cdef double dual, top = 0
        for r in range(g.shape[0]):
            dual = self.row_dual(data + r * g.shape[1], g.shape[1])
            dual = dual if b is None else dual / b[r]
            top = top if dual <= top else dual
        return top

    def prox(self, V, t, weights=None, out=None):
        """argmin_U 1/2 |U - V|^2 + t Omega(U), t >= 0; written to `out` (which may be V)."""
        V = as_float_array(V, "V", (None, None))
        cdef double strength = as_positive(t, "t", or_zero=True)
        cdef const double[::1] b = positive_rows(weights, "weights", V.shape[0])
        out = as_output(out, "out", V.shape)
        if out is not V:
            out[...] = V
        cdef double[:, ::1] u = out
        cdef double* data = first_out(u)
        cdef const double* w = first_of(b)
        cdef Py_ssize_t m = u.shape[1], r
        with nogil:
            for r in range(u.shape[0]):
                self.row_prox(data + r * m, threshold(strength, w, NULL, r), m)
        return out

    def project(self, V, tau, weights=None, metric=None, out=None):
        """Euclidean projection on the ball {U : Omega(U) <= tau}, tau > 0.

        Exact up to rounding (a few 1e-16 max|V|; some digits more are lost when weights or metric
        span many decades), and never outside the ball by more than 1e-12 tau. A V in the ball is
        returned unchanged.

        Parameters
        ----------
        V : array-like of shape (k, m)
        tau : float
        weights : array-like of shape (k,), optional
            The positive weights of Omega.
        metric : array-like of shape (k,), optional
            Measure the distance by sum_r metric_r |u_r - v_r|^2 instead; only ratios matter.
        out : ndarray of shape (k, m), optional
            Where to write; may be V itself.

        Returns
        -------
        ndarray of shape (k, m)

        Examples
        --------
        >>> from fastpoly.kernels.penalties import L1, L1Linf
        >>> L1().project([[3.0, 1.0], [0.5, -2.0]], 2.0)
        array([[ 1.5,  0. ],
               [ 0. , -0.5]])
        >>> L1Linf().project([[3.0, 1.0], [0.5, -2.0]], 3.0)
        array([[ 2. ,  1. ],
               [ 0.5, -1. ]])
        """
        V = as_float_array(V, "V", (None, None))
        cdef double radius = as_positive(tau, "tau"), total
        cdef const double[::1] b = positive_rows(weights, "weights", V.shape[0])
        metric = positive_rows(metric, "metric", V.shape[0])
        cdef const double[::1] s = None
        if metric is not None and metric.size:
            s = metric.min() / metric
        out = as_output(out, "out", V.shape)
        if out is not V:
            out[...] = V
        cdef double[:, ::1] u = out
        with nogil:
            total = self.project_rows(
                first_out(u), radius, first_of(b), first_of(s), u.shape[0], u.shape[1]
            )
        if total != total:
            raise NotImplementedError(f"{type(self).__name__} needs row_norm and row_shrunk")
        return out

    def criterion(self, q):
        """Selection criterion f_p of one gradient row q (m,): (f_p(q), df_p/dq (m,))."""
        cdef const double[::1] row = as_float_array(q, "q", (None,))
        out = np.zeros(row.shape[0])
        cdef double[::1] w = out
        return (self.row_criterion(&row[0], &w[0], row.shape[0]) if row.shape[0] else 0.0), out

    def polar(self, q):
        """A maximizer of q'v over ||v|| <= 1, (m,); zeros when q = 0."""
        cdef const double[::1] row = as_float_array(q, "q", (None,))
        out = np.zeros(row.shape[0])
        cdef double[::1] v = out
        if row.shape[0]:
            self.row_polar(&row[0], &v[0], row.shape[0])
        return out

    # ---- whole-matrix verbs of the selection: Q (k, m) holds one gradient row per basis vector ----

    separable = False  # whether ||v|| = sum_c |v_c|, which makes every output a problem of its own

    def dual_norms(self, Q):
        """Dual norms ||q_r||_* of the rows, (k,).

        Examples
        --------
        >>> from fastpoly.kernels.penalties import get_penalty
        >>> get_penalty("l1/linf").dual_norms([[3.0, -4.0], [0.0, 1.0]])
        array([7., 1.])
        """
        cdef const double[:, ::1] q = float_rows(Q, "Q")
        cdef Py_ssize_t r, k = q.shape[0], m = q.shape[1]
        out = np.empty(k)
        cdef double[::1] norms = out
        cdef const double* data = first(q)
        with nogil:
            for r in range(k):
                norms[r] = self.row_dual(data + r * m, m)
        return out

    def slopes(self, Q, double threshold=1e-6):
        """Slopes w_r of the dual norm at the rows q_r, smoothed, (k, m).

        With x = q_r / (threshold max_c |q_rc|) it is w_r = a df_p(x)/dx, where a > 0 makes
        w_r'q_r = ||q_r||_*. The default is as good as a subgradient; zero rows get zeros.

        Examples
        --------
        >>> from fastpoly.kernels.penalties import get_penalty
        >>> get_penalty("l1/linf").slopes([[3.0, -4.0]], 1e-6)
        array([[ 1., -1.]])
        """
        cdef const double[:, ::1] q = float_rows(Q, "Q")
        cdef Py_ssize_t r, c, k = q.shape[0], m = q.shape[1]
        out = np.zeros((k, m))
        cdef double[:, ::1] w = out
        cdef double[::1] x = np.empty(m + 1)
        cdef double top, product, scale
        with nogil:
            for r in range(k):
                top = max_abs(&q[r, 0], m) if m else 0
                if top == 0:
                    continue
                for c in range(m):
                    x[c] = q[r, c] / top / threshold
                self.row_criterion(&x[0], &w[r, 0], m)
                product = 0
                for c in range(m):
                    product += w[r, c] * x[c]
                scale = self.row_dual(&x[0], m) / product if product != 0 else 0
                for c in range(m):
                    w[r, c] *= scale
        return out

    def dual_ratios(self, m):
        """The largest ||q||_* / |q|_1 and ||q||_* / |q|_2 over q (m,), or upper bounds of them."""
        return ratios_of(self.dual_norms(np.eye(m)))

    def n_vertices(self, m):
        """How many vertices the unit ball of ||v|| has, v and -v counted once; None if not few."""
        return None

    def vertices(self, m, first=0, last=None):
        """Vertices first..last-1 of the unit ball: ||q||_* is the largest |s'q| over them."""
        raise NotImplementedError(f"the unit ball of {self!r} has no list of vertices")

    def smooth_model(self, V, level):
        """Slope g and curvature diag(d) - a a' of a smooth stand-in for the norm of every row.

        For Newton's method: a penalty without one returns None, and is solved by descent alone.

        Parameters
        ----------
        V : array-like of shape (k, m)
        level : float
            In 0..1. The norm's own curvature is that of level 0. Level 1 has more where the norm
            is flat, so that a step ends before a kink.

        Returns
        -------
        (g, d, a) or None
            Three arrays of shape (k, m), for the model
            ``||v|| + g'u + 1/2 (sum_c d_c u_c^2 - (a'u)^2)`` of the norm at v + u. An infinite d
            keeps an entry at zero.

        Examples
        --------
        >>> from fastpoly.kernels.penalties import L1
        >>> g, d, a = L1().smooth_model([[2.0, 0.0]], 0.5)
        >>> g, d
        (array([[1., 0.]]), array([[0.25,  inf]]))
        """
        return None


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
        """Level 1: the upper bound |v + u| <= (v + u)^2 / (2 |v|) + |v| / 2 of every entry."""
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
        """Level 1: the upper bound ||v + u|| <= |v + u|^2 / (2 ||v||) + ||v|| / 2 of every row."""
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
        """The vectors of signs, the first sign +."""
        last = min(self.n_vertices(m) if last is None else last, self.n_vertices(m))
        return 1.0 - 2.0 * (np.arange(first, last)[:, None] >> np.arange(m)[::-1] & 1)

    def smooth_model(self, V, level):
        """That of min_s s - mu sum_c log(s^2 - v_c^2), the norm as an interior-point method sees it.

        mu is chosen such that the best s is (1 + level / 10) ||v||. One entry is |v|: see `L1`.
        """
        V = as_float_array(V, "V", (None, None))
        if V.shape[1] == 1:
            return L1().smooth_model(V, level)
        scale = inverse(self.row_norms(V))[:, None]  # the formulas are those of rows of norm 1
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
        # t = sum_c max(|v_c| - s, 0) is convex and decreasing in s, so s is both in t. The right
        # derivative counts the ties |v_c| = s: they leave as soon as t grows.
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
    """The penalty of this name, or `penalty` itself when it has the verbs of one.

    Parameters
    ----------
    penalty : str or object
        A key of `PENALTIES`, a `Penalty`, or any object with these methods of `Penalty`:

        - ``value(V, weights=None)``, ``dual_norm(G, weights=None)``: Omega and its dual norm,
        - ``prox(V, t, weights=None, out=None)``: for the penalized form (alpha),
        - ``project(V, tau, weights=None, metric=None, out=None)``: for the constrained form (tau),
        - ``criterion(q)``: for the selection of basis vectors,
        - ``polar(q)``: only for ``refit=None``,
        - ``dual_norms(Q)``, ``slopes(Q, threshold)``: where it can, all rows at once; faster.

    Returns
    -------
    Penalty or object

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
    return penalty


class RowByRow:
    """The whole-matrix verbs for a penalty object that lacks some of them, one row at a time.

    The object needs ``dual_norm(G)`` and ``criterion(q)``. A verb that it has is used.
    """

    separable = False

    def __init__(self, penalty):
        self.penalty = penalty
        for verb in ("dual_norms", "slopes", "dual_ratios", "n_vertices", "vertices", "separable"):
            if hasattr(penalty, verb):
                setattr(self, verb, getattr(penalty, verb))

    def __repr__(self):
        return repr(self.penalty)

    def dual_norms(self, Q):
        return np.array([float(self.penalty.dual_norm(row[None])) for row in np.asarray(Q)])

    def slopes(self, Q, threshold=1e-6):
        Q = np.asarray(Q)
        W = np.zeros(Q.shape)
        for q, w in zip(Q, W):
            if q.any():
                x = q / np.abs(q).max() / threshold
                w[:] = self.penalty.criterion(x)[1]
                product = w @ x
                w *= float(self.penalty.dual_norm(x[None])) / product if product != 0 else 0.0
        return W

    def dual_ratios(self, m):
        return ratios_of(self.dual_norms(np.eye(m)))

    def n_vertices(self, m):
        return None


def ratios_of(norms):
    """Bounds of any norm by |q|_1 and |q|_2, given the norms of the unit vectors.

    ||q|| <= sum_c |q_c| ||e_c||, by the triangle inequality.
    """
    return float(norms.max()), float(np.linalg.norm(norms))


def with_matrix_verbs(penalty):
    """`penalty` with the verbs `dual_norms`, `slopes`, `dual_ratios`, `n_vertices`, `separable`.

    Examples
    --------
    >>> from fastpoly.kernels.penalties import L1L2, with_matrix_verbs
    >>> with_matrix_verbs(L1L2())
    L1L2()
    """
    return penalty if isinstance(penalty, Penalty) else RowByRow(penalty)


include "penalties_fista.pxi"
