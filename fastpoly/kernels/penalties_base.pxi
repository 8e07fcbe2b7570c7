# The base class of all penalties: the methods for whole matrices follow from the `row_*` methods.


cdef class Penalty:
    """Base of the penalties; use a subclass. All are stateless, picklable and equal by class.

    A subclass with parameters must define ``__eq__`` and ``__hash__``. If it keeps them in C
    attributes, it must also define ``__reduce__``; otherwise it can be neither pickled nor copied.

    `weights` (k,) are positive; None stands for ones. Inputs are checked and never changed, unless
    one of them is also `out`.

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
    compiled = True  # whether it has the `row_*` methods; Newton's method needs them
    smooth_form = None  # how H and V descend together; with None only the output layer is fitted

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

    # A subclass that lacks one of these gives NaN, not a plausible number.
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
                best = theta  # a theta past the root, by rounding only, may leave nothing to scale
            step = (tau - total) / slope if slope < 0 else 0
            if not theta + step > theta:
                break
            theta += step
        if total != total:
            return NAN
        total = 0
        for r in range(k):
            total += weight(b, r) * self.row_prox(V + r * m, threshold(best, b, s, r), m)
        # phi(theta) = 0 up to the rounding of theta; a last scaling meets the constraint.
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

        The result is exact up to rounding (a few 1e-16 max|V|; a few more digits are lost if
        weights or metric span many decades). It is never outside the ball by more than 1e-12 tau. A
        V in the ball is returned unchanged.

        Parameters
        ----------
        V : array-like of shape (k, m)
        tau : float
        weights : array-like of shape (k,), optional
            The positive weights of Omega.
        metric : array-like of shape (k,), optional
            Measure the distance by sum_r metric_r |u_r - v_r|^2 instead; only ratios matter.
        out : ndarray of shape (k, m), optional
            Memory for the result; may be V itself.

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

    # ---- methods for the selection; Q (k, m) holds one gradient row per basis vector ----

    separable = False  # whether ||v|| = sum_c |v_c|, so that every output is a separate problem

    def dual_norms(self, Q):
        """Dual norms ||q_r||_* of the rows, (k,).

        Examples
        --------
        >>> from fastpoly.kernels.penalties import get_penalty
        >>> get_penalty("l1/linf").dual_norms([[3.0, -4.0], [0.0, 1.0]])
        array([7., 1.])
        """
        cdef const double[:, ::1] q = matrix(Q, "Q")
        cdef Py_ssize_t r, k = q.shape[0], m = q.shape[1]
        out = np.empty(k)
        cdef double[::1] norms = out
        cdef const double* data = first(q)
        with nogil:
            for r in range(k):
                norms[r] = self.row_dual(data + r * m, m)
        return out

    def slopes(self, Q, double threshold=1e-6):
        """Slopes w_r of the smoothed dual norm at the rows q_r, (k, m).

        With x = q_r / (threshold max_c |q_rc|) it is w_r = a df_p(x)/dx, where a > 0 makes
        w_r'q_r = ||q_r||_*. The default is as good as a subgradient; zero rows get zeros.

        Examples
        --------
        >>> from fastpoly.kernels.penalties import get_penalty
        >>> get_penalty("l1/linf").slopes([[3.0, -4.0]], 1e-6)
        array([[ 1., -1.]])
        """
        cdef const double[:, ::1] q = matrix(Q, "Q")
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
        """The largest ||q||_* / |q|_1 and ||q||_* / |q|_2 over q (m,), or upper bounds on them."""
        return ratios_of(self.dual_norms(np.eye(m)))

    def n_vertices(self, m):
        """How many vertices the unit ball of ||v|| has, v and -v counted once; None if too many."""
        return None

    def vertices(self, m, first=0, last=None):
        """Vertices first..last-1 of the unit ball: ||q||_* is the largest |s'q| over them."""
        raise NotImplementedError(f"the unit ball of {self!r} has no list of vertices")

    def smooth_model(self, V, level):
        """Slope g and curvature diag(d) - a a' of a smooth model of the norm of every row.

        Newton's method uses it. A penalty without one returns None, and is solved by descent only.

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
