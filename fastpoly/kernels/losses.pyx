"""Losses: from one row of outputs o (m,) and its target y to a value and a gradient.

A loss never sees X. Values are sums over the rows, not means. In C a loss works on rows, from
Python on matrices; `Loss` holds the loops over rows, a subclass one row (`row`). The built-in
losses have vectorised loops of their own in ``simd/losses.c``, where their gradients are derived.

To add a loss, write one class with `name`, `target` and `row`, and list it in `LOSSES`.
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY, NAN, fabs, log
from libc.stdint cimport uintptr_t
from libc.string cimport memset

import numpy as np

from fastpoly.kernels.checks import as_float_array, as_output, as_weights
from fastpoly.kernels.runtime cimport effective_n_threads, threads_for

cdef extern from "simd/losses.h":
    ctypedef double (*fp_loss_rows)(
        const double*, const double*, const double*, double*, Py_ssize_t, Py_ssize_t
    ) noexcept nogil
    struct losses_loops:
        fp_loss_rows multiclass_logistic
        fp_loss_rows smoothed_multiclass_hinge
        fp_loss_rows multiclass_squared_hinge
        fp_loss_rows binary_logistic
        fp_loss_rows binary_squared_hinge
        fp_loss_rows squared
        void (*exp)(const double*, double*, Py_ssize_t) noexcept nogil
        void (*log1p)(const double*, double*, Py_ssize_t) noexcept nogil
        bint (*all_within)(const double*, Py_ssize_t, double, double) noexcept nogil
    const losses_loops* choose_losses_loops() noexcept nogil

cdef const losses_loops* loops = choose_losses_loops()

# The rows are always cut into the same chunks, whose sums are added in order: the value has the
# same bits for any number of threads, and long sums stay accurate.
cdef enum:
    MAX_CHUNKS = 256
    MIN_CHUNK_ROWS = 1024
    LINE = 8  # doubles of a cache line, which two threads must not share
    OPERATIONS_PER_ENTRY = 8


cdef class Loss:
    """One row of outputs and its target -> value, gradient and curvature.

    Attributes
    ----------
    name : str
        The key in `LOSSES`.
    target : {"label", "sign", "real"}
        What `encode` makes of y: class codes (n, 1), entries -1 or +1 (n, m), numbers (n, m).

    Notes
    -----
    Losses carry no state: two of one class are equal. A subclass with parameters defines
    ``__eq__`` and ``__hash__`` anew.
    """

    name = "loss"
    target = "real"
    shift_invariant = False  # whether l(y, o + t 1) = l(y, o)

    # --- in C: rows ---

    cdef double row(
        self, const double* y, const double* o, double* g, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        if g != NULL:
            for c in range(m):
                g[c] = NAN
        return NAN

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return INFINITY

    cdef void curvature_row(
        self, const double* y, const double* o, double* h, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = self.bound(m)

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        return NAN

    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c, e, p = 0
        self.curvature_row(y, o, work, m)
        for c in range(m):
            for e in range(c, m):
                h[p] = work[c] if e == c else 0.0
                p += 1

    cdef double rows(
        self, const double* Y, const double* O, const double* w, double* G,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil:
        cdef Py_ssize_t i
        cdef double value = 0.0, weight
        cdef double* g = NULL
        for i in range(n):
            weight = 1.0 if w == NULL else w[i]
            if G != NULL:
                g = G + i * m
            if weight > 0.0:
                value += weight * self.row(Y + i * y_width, O + i * m, g, m)
            if G != NULL:
                scale(g, weight, m)
        return value

    cdef void curvature_rows(
        self, const double* Y, const double* O, const double* w, double* C,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(n):
            self.curvature_row(Y + i * y_width, O + i * m, C + i * m, m)
            scale(C + i * m, 1.0 if w == NULL else w[i], m)

    cdef const double[:, ::1] targets(self, object Y, Py_ssize_t n, Py_ssize_t m):
        cdef bint label = self.target == "label"
        cdef const double[:, ::1] view = matrix(Y, "Y", n, 1 if label else m)
        if label and n and not loops.all_within(&view[0, 0], n, 0.0, m):
            encode_targets("label", Y, m)
        return view

    # --- in Python: matrices ---

    def encode(self, y, n_outputs=None):
        """Check the targets y and return them in the one form the other methods take.

        Parameters
        ----------
        y : array-like
            Label: whole numbers 0 .. m - 1, shape (n,) or (n, 1). Sign: entries -1 or +1, shape
            (n,) for one output or (n, m). Real: finite numbers, the same shapes.
        n_outputs : int, optional
            The number m of outputs that y must agree with.

        Returns
        -------
        Y : ndarray of float64, shape (n, 1) for labels, otherwise (n, m)

        Examples
        --------
        >>> from fastpoly.kernels.losses import MulticlassLogistic
        >>> MulticlassLogistic().encode([0, 2, 1], 3).tolist()
        [[0.0], [2.0], [1.0]]
        """
        return encode_targets(self.target, y, n_outputs)

    def check_targets(self, Y, n_outputs):
        """Raise unless Y has the shape and the class codes that `encode` gives for n_outputs.

        `value`, `value_grad` and `curvature` do this themselves; kernels that call `rows` must
        have done it. Signs and finiteness are left to `encode`.
        """
        self.targets(Y, len(Y), as_count(n_outputs))

    def value(self, Y, O, w=None):
        """sum_i w_i l(y_i, o_i).

        Parameters
        ----------
        Y : array, as `encode` returns it
        O : array of shape (n, m)
            Outputs. NaN and infinity are allowed in and come out as NaN or infinity.
        w : array of shape (n,), optional
            Weights >= 0; a row of weight 0 counts for nothing. None: all ones.

        Returns
        -------
        float

        Examples
        --------
        >>> from fastpoly.kernels.losses import Squared
        >>> Squared().value([[1.0], [2.0]], [[4.0], [2.0]])
        4.5
        """
        return evaluate(self, Y, matrix(O, "O", -1, -1), w, None, 1, False)

    def value_grad(self, Y, O, w=None, out=None, n_threads=1):
        """Value and gradient with respect to O, in one pass.

        Parameters
        ----------
        Y, O, w :
            As for `value`.
        out : float64 array of shape (n, m), optional
            Where to write the gradient; must not overlap the inputs.
        n_threads : int or None
            See `fastpoly.kernels.runtime.effective_n_threads`. The result does not depend on it.

        Returns
        -------
        value : float
        G : ndarray of shape (n, m)
            Row i is w_i times the gradient of l(y_i, .) at o_i; it is `out` if that was given.

        Examples
        --------
        >>> from fastpoly.kernels.losses import MulticlassLogistic
        >>> value, G = MulticlassLogistic().value_grad([[0]], [[0.0, 0.0]])
        >>> round(value, 4), G.tolist()
        (0.6931, [[-0.5, 0.5]])
        """
        cdef const double[:, ::1] outputs = matrix(O, "O", -1, -1)
        cdef int threads = effective_n_threads(n_threads)
        G = as_output(out, "out", (outputs.shape[0], outputs.shape[1]))
        return evaluate(self, Y, outputs, w, G, threads, False), G

    def curvature(self, Y, O, w=None, out=None):
        """Diagonals of the Hessians: C[i, c] = w_i d^2 l(y_i, o_i) / d o_ic^2, shape (n, m).

        Parameters are those of `value_grad`. At a kink it is that of the flat side. A loss that
        does not know its Hessian gives `smoothness` everywhere.

        Examples
        --------
        >>> from fastpoly.kernels.losses import BinaryLogistic
        >>> BinaryLogistic().curvature([[1.0, -1.0]], [[0.0, 0.0]]).tolist()
        [[0.25, 0.25]]
        """
        cdef const double[:, ::1] outputs = matrix(O, "O", -1, -1)
        C = as_output(out, "out", (outputs.shape[0], outputs.shape[1]))
        evaluate(self, Y, outputs, w, C, 1, True)
        return C

    def hessian(self, Y, O, w=None):
        """Weighted Hessians of the rows, their upper triangles packed, (n, m (m + 1) / 2).

        H[i, p] = w_i d^2 l(y_i, o_i) / d o_ic d o_ie for the pairs p = (c, e), c <= e, in the order
        of `numpy.triu_indices(m)`. Parameters are those of `value_grad`.

        Examples
        --------
        >>> from fastpoly.kernels.losses import MulticlassLogistic
        >>> MulticlassLogistic().hessian([[0.0]], [[0.0, 0.0]])
        array([[ 0.25, -0.25,  0.25]])
        """
        cdef const double[:, ::1] outputs = matrix(O, "O", -1, -1)
        cdef Py_ssize_t i, p, n = outputs.shape[0], m = outputs.shape[1]
        cdef const double[:, ::1] y = self.targets(Y, n, m)
        cdef const double[::1] weights = as_weights(w, "w", n)
        cdef double[:, ::1] H = np.empty((n, m * (m + 1) // 2))
        cdef double[::1] work = np.empty(m + 1)
        for i in range(n if m else 0):
            self.hessian_row(&y[i, 0], &outputs[i, 0], &H[i, 0], &work[0], m)
            if weights is not None:
                scale(&H[i, 0], weights[i], H.shape[1])
        return H.base

    def conjugate(self, Y, U, double scale=1.0, w=None):
        """The convex conjugate sum_i w_i l*(y_i, scale u_i / w_i), for duality gaps.

        l*(y, u) = max_o u'o - l(y, o). Infinity where the maximum is unbounded, NaN where the loss
        does not know its conjugate.

        Parameters
        ----------
        Y : ndarray, (n, 1 or m)
            Targets as `encode` returns them.
        U : array-like, (n, m)
            Weighted gradients, as `value_grad` returns them.
        scale : float
            In 0..1.
        w : array-like, (n,), optional

        Examples
        --------
        >>> from fastpoly.kernels.losses import Squared
        >>> Squared().conjugate([[1.0]], [[2.0]])
        4.0
        """
        cdef const double[:, ::1] u = matrix(U, "U", -1, -1)
        cdef Py_ssize_t i, n = u.shape[0], m = u.shape[1]
        cdef const double[:, ::1] y = self.targets(Y, n, m)
        cdef const double[::1] weights = as_weights(w, "w", n)
        cdef double total = 0.0, weight = 1.0
        for i in range(n if m else 0):
            if weights is not None:
                weight = weights[i]
            if weight > 0.0:
                total += weight * self.conjugate_row(&y[i, 0], &u[i, 0], scale / weight, m)
        return total

    def smoothness(self, n_outputs):
        """Lipschitz constant of the gradient in the l2 norm, for n_outputs outputs.

        Infinity: not known; a solver must search for its step size.

        Examples
        --------
        >>> from fastpoly.kernels.losses import MulticlassSquaredHinge
        >>> MulticlassSquaredHinge().smoothness(5)
        10.0
        """
        return self.bound(as_count(n_outputs))

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def __repr__(self):
        return f"{type(self).__name__}()"


# --- checks and the loop over chunks, shared by the methods above ---

cdef Py_ssize_t as_count(object n_outputs) except -1:
    if isinstance(n_outputs, bool) or not hasattr(n_outputs, "__index__"):
        raise TypeError(f"n_outputs must be a positive int, got {n_outputs!r}")
    if not 1 <= n_outputs < 2**31:
        raise ValueError(f"n_outputs must be between 1 and 2^31 - 1, got {n_outputs}")
    return n_outputs


cdef const double[:, ::1] matrix(object a, str name, Py_ssize_t n, Py_ssize_t m):
    """A float64 view of shape (n, m), at no cost when `a` is one already; -1: any length."""
    cdef const double[:, ::1] view
    shape = (None if n < 0 else n, None if m < 0 else m)
    try:
        view = () if a is None else a  # None would pass as an empty view
    except (TypeError, ValueError):
        view = as_float_array(a, name, shape, finite=False)
    if (n >= 0 and view.shape[0] != n) or (m >= 0 and view.shape[1] != m):
        as_float_array(a, name, shape, finite=False)
    if view.shape[1] == 0:
        raise ValueError(f"{name} must have at least one column, got shape {np.shape(a)}")
    if view.shape[0] and misaligned(&view[0, 0]):
        view = np.array(a)  # a fresh array is aligned
    return view


cdef bint misaligned(const double* p) noexcept:
    return <uintptr_t> p % sizeof(double) != 0


cdef bint overlap(const double* a, Py_ssize_t n_a, const double* b, Py_ssize_t n_b) noexcept:
    return <uintptr_t> a < <uintptr_t> (b + n_b) and <uintptr_t> b < <uintptr_t> (a + n_a)


cdef double evaluate(
    Loss loss, object targets, const double[:, ::1] O, object weights, object out,
    int n_threads, bint curvature
) except? -1.0:
    """Check the arguments, then run the loss over O: the value; gradients or curvatures to out."""
    cdef Py_ssize_t n = O.shape[0], m = O.shape[1]
    cdef const double[:, ::1] Y = loss.targets(targets, n, m)
    cdef const double[::1] w_view
    cdef double[:, ::1] G_view
    cdef const double* w = NULL
    cdef double* G = NULL
    if weights is not None:
        try:
            w_view = weights
        except (TypeError, ValueError):
            w_view = as_weights(weights, "w", n)
        if n and w_view.shape[0] and misaligned(&w_view[0]):
            w_view = np.array(weights)
        if w_view.shape[0] != n or (n and not loops.all_within(&w_view[0], n, 0.0, INFINITY)):
            as_weights(weights, "w", n)
    if n == 0:
        return 0.0
    if weights is not None:
        w = &w_view[0]
    if out is not None:
        G_view = out
        G = &G_view[0, 0]
        if misaligned(G):
            raise ValueError("out must be aligned; pass a fresh array")
        if (overlap(G, n * m, &O[0, 0], n * m) or overlap(G, n * m, &Y[0, 0], n * Y.shape[1])
                or (w != NULL and overlap(G, n * m, w, n))):
            raise ValueError("out must not overlap Y, O or w; pass another array")
    with nogil:
        if curvature:
            loss.curvature_rows(&Y[0, 0], &O[0, 0], w, G, n, m, Y.shape[1])
            return 0.0
        return sum_chunks(loss, &Y[0, 0], &O[0, 0], w, G, n, m, Y.shape[1], n_threads)


cdef double sum_chunks(
    Loss loss, const double* Y, const double* O, const double* w, double* G,
    Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width, int n_threads
) noexcept nogil:
    cdef Py_ssize_t k, size = max(MIN_CHUNK_ROWS, (n + MAX_CHUNKS - 1) // MAX_CHUNKS)
    cdef Py_ssize_t n_chunks = (n + size - 1) // size
    cdef int threads = threads_for(n_threads, OPERATIONS_PER_ENTRY * <double> n * m)
    cdef double value = 0.0
    cdef double[MAX_CHUNKS * LINE] partial
    for k in prange(n_chunks, num_threads=threads, schedule="static"):
        partial[k * LINE] = loss.rows(
            Y + k * size * y_width, O + k * size * m,
            <const double*> NULL if w == NULL else w + k * size,
            NULL if G == NULL else G + k * size * m, min(size, n - k * size), m, y_width,
        )
    for k in range(n_chunks):
        value = value + partial[k * LINE]
    return value


cdef inline void scale(double* row, double weight, Py_ssize_t m) noexcept nogil:
    """row *= weight, exactly 0 for weight 0 whatever the row holds."""
    cdef Py_ssize_t c
    if weight > 0.0:
        for c in range(m):
            row[c] *= weight
    else:
        memset(row, 0, m * sizeof(double))


def encode_targets(target, y, n_outputs=None):
    """The targets y, checked, as a float64 matrix: see `Loss.encode`.

    Parameters
    ----------
    target : {"label", "sign", "real"}
    y : array-like
    n_outputs : int, optional

    Returns
    -------
    Y : ndarray

    Examples
    --------
    >>> from fastpoly.kernels.losses import encode_targets
    >>> encode_targets("sign", [1, -1]).tolist()
    [[1.0], [-1.0]]
    """
    if target not in CURES:
        raise ValueError(f"target must be one of {list(CURES)}, got {target!r}")
    m = None if n_outputs is None else as_count(n_outputs)
    if not hasattr(y, "tocsr"):
        y = np.asarray(y)
        if y.dtype.kind not in "buif":
            raise TypeError(f"y must hold numbers, got dtype {y.dtype}; {CURES[target]}")
        if y.ndim == 1:
            y = y.reshape(-1, 1)
    Y = as_float_array(y, "y", (None, 1 if target == "label" else m))
    if Y.shape[1] == 0:
        raise ValueError(f"y must have at least one column, got shape {Y.shape}")
    if target == "label":
        n_classes = m or 2**31 - 1
        wrong = (Y < 0) | (Y >= n_classes) | (Y != np.floor(Y))
        wanted = f"a class code 0 .. {n_classes - 1}"
    elif target == "sign":
        wrong, wanted = np.abs(Y) != 1, "-1 or +1"
    else:
        return Y
    if wrong.any():
        raise ValueError(f"y holds {Y[wrong][0]:g}, which is not {wanted}; {CURES[target]}")
    return Y


CURES = {
    "label": "number the classes, e.g. with np.unique(y, return_inverse=True)",
    "sign": "map absent and present to -1 and +1, e.g. with np.where(y, 1, -1)",
    "real": "convert it to float",
}


# --- the losses ---

cdef class _BuiltIn(Loss):
    """A loss with a loop in C, whose Hessian diagonal can be read off its gradient."""

    cdef fp_loss_rows loop(self) noexcept nogil:
        return NULL

    # In place: the gradient h (m,) of one row becomes the diagonal of its Hessian. That of the
    # logistic losses is p (1 - p), and their gradient is p, -p or p - 1.
    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = fabs(h[c]) * (1.0 - fabs(h[c]))

    cdef double row(
        self, const double* y, const double* o, double* g, Py_ssize_t m
    ) noexcept nogil:
        return self.loop()(y, o, NULL, g, 1, m)

    cdef double rows(
        self, const double* Y, const double* O, const double* w, double* G,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil:
        return self.loop()(Y, O, w, G, n, m)

    cdef void curvature_row(
        self, const double* y, const double* o, double* h, Py_ssize_t m
    ) noexcept nogil:
        self.row(y, o, h, m)
        self.hessian(y, h, m)

    cdef void curvature_rows(
        self, const double* Y, const double* O, const double* w, double* C,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil:
        cdef Py_ssize_t i
        self.rows(Y, O, NULL, C, n, m, y_width)
        for i in range(n):
            self.hessian(Y + i * y_width, C + i * m, m)
            if w != NULL:
                scale(C + i * m, w[i], m)


cdef inline double x_log_x(double x) noexcept nogil:
    return x * log(x) if x > 0.0 else 0.0


cdef bint adds_to_zero(const double* u, double scale, Py_ssize_t m) noexcept nogil:
    """Whether sum_c u_c = 0 within rounding; else o + t 1 makes u'o - l(y, o) unbounded."""
    cdef Py_ssize_t c
    cdef double total = 0.0, size = 0.0
    for c in range(m):
        total += u[c]
        size += fabs(u[c])
    return scale * fabs(total) <= 1e-12 * (1.0 + scale * size)


cdef double negative_entropy(
    Py_ssize_t label, const double* u, double scale, double margin, Py_ssize_t m
) noexcept nogil:
    """Conjugate of the soft maximum: sum_c q_c log q_c - margin (1 - q_y), q = u + e_y >= 0."""
    cdef Py_ssize_t c
    cdef double total = 0.0, q
    if not adds_to_zero(u, scale, m):
        return INFINITY
    for c in range(m):
        q = scale * u[c] + (c == label)
        if q < -1e-12:
            return INFINITY
        total += x_log_x(q)
        if c != label:
            total -= margin * q
    return total


cdef void softmax_hessian(
    Py_ssize_t label, double* g, double* h, Py_ssize_t m
) noexcept nogil:
    """diag(p) - p p', packed, from the gradient g = p - e_y."""
    cdef Py_ssize_t c, e, k = 0
    g[label] += 1.0
    for c in range(m):
        for e in range(c, m):
            h[k] = g[c] * (1.0 - g[c]) if e == c else -g[c] * g[e]
            k += 1


cdef class MulticlassLogistic(_BuiltIn):
    """l(y, o) = log(1 + sum_{c != y} exp(o_c - o_y)), y a class code."""

    name = "multiclass_logistic"
    target = "label"

    shift_invariant = True

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        return negative_entropy(<Py_ssize_t> y[0], u, scale, 0.0, m)

    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil:
        self.row(y, o, work, m)
        softmax_hessian(<Py_ssize_t> y[0], work, h, m)

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.multiclass_logistic

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 0.5


cdef class SmoothedMulticlassHinge(_BuiltIn):
    """l(y, o) = log(1 + sum_{c != y} exp(1 + o_c - o_y)), y a class code."""

    name = "smoothed_multiclass_hinge"
    target = "label"

    shift_invariant = True

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        return negative_entropy(<Py_ssize_t> y[0], u, scale, 1.0, m)

    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil:
        self.row(y, o, work, m)
        softmax_hessian(<Py_ssize_t> y[0], work, h, m)

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.smoothed_multiclass_hinge

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 0.5


cdef class MulticlassSquaredHinge(_BuiltIn):
    """l(y, o) = sum_{c != y} max(1 + o_c - o_y, 0)^2, y a class code."""

    name = "multiclass_squared_hinge"
    target = "label"

    shift_invariant = True

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_{c != y} u_c^2 / 4 - u_c, for u_c >= 0
        cdef Py_ssize_t c
        cdef double total = 0.0, t
        if not adds_to_zero(u, scale, m):
            return INFINITY
        for c in range(m):
            if c != <Py_ssize_t> y[0]:
                t = scale * u[c]
                if t < -1e-12:
                    return INFINITY
                total += t * (0.25 * t - 1.0)
        return total

    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil:
        # sum over the active c != y of 2 (e_c - e_y)(e_c - e_y)'
        cdef Py_ssize_t c, e, p = 0, label = <Py_ssize_t> y[0]
        self.curvature_row(y, o, work, m)
        for c in range(m):
            for e in range(c, m):
                if e == c:
                    h[p] = work[c]
                elif c == label:
                    h[p] = -work[e]
                elif e == label:
                    h[p] = -work[c]
                else:
                    h[p] = 0.0
                p += 1

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.multiclass_squared_hinge

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 2.0 * m

    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c, active = 0, label = <Py_ssize_t> y[0]
        for c in range(m):
            active += c != label and h[c] > 0.0
            h[c] = 2.0 if h[c] > 0.0 else 0.0
        h[label] = 2.0 * active


cdef class BinaryLogistic(_BuiltIn):
    """l(y, o) = sum_c log(1 + exp(-y_c o_c)), y_c in {-1, +1}."""

    name = "binary_logistic"
    target = "sign"

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_c s log s + (1 - s) log(1 - s), s = -y_c u_c in 0..1
        cdef Py_ssize_t c
        cdef double total = 0.0, s
        for c in range(m):
            s = -y[c] * scale * u[c]
            if not -1e-12 <= s <= 1.0 + 1e-12:
                return INFINITY
            total += x_log_x(s) + x_log_x(1.0 - s)
        return total

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.binary_logistic

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 0.25


cdef class BinarySquaredHinge(_BuiltIn):
    """l(y, o) = sum_c max(1 - y_c o_c, 0)^2, y_c in {-1, +1}."""

    name = "binary_squared_hinge"
    target = "sign"

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_c s^2 / 4 - s, s = -y_c u_c >= 0
        cdef Py_ssize_t c
        cdef double total = 0.0, s
        for c in range(m):
            s = -y[c] * scale * u[c]
            if s < -1e-12:
                return INFINITY
            total += s * (0.25 * s - 1.0)
        return total

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.binary_squared_hinge

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 2.0

    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = 2.0 if h[c] != 0.0 else 0.0


cdef class Squared(_BuiltIn):
    """l(y, o) = sum_c (o_c - y_c)^2 / 2, y_c real."""

    name = "squared"
    target = "real"

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        cdef double total = 0.0
        for c in range(m):
            total += scale * u[c] * (0.5 * scale * u[c] + y[c])
        return total

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.squared

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 1.0

    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = 1.0


LOSSES = {
    loss.name: loss
    for loss in (
        MulticlassLogistic,
        SmoothedMulticlassHinge,
        MulticlassSquaredHinge,
        BinaryLogistic,
        BinarySquaredHinge,
        Squared,
    )
}


def get_loss(loss):
    """The loss for a name, or the loss itself.

    Parameters
    ----------
    loss : str, Loss, or any object with `target`, `value`, `value_grad` and `smoothness`

    Examples
    --------
    >>> from fastpoly.kernels.losses import get_loss
    >>> get_loss("squared")
    Squared()
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ValueError(f"unknown loss {loss!r}; the known ones are {sorted(LOSSES)}")
        return LOSSES[loss]()
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, type):
        raise TypeError(f"loss must be an instance, got the class; write {loss.__name__}()")
    verbs = (getattr(loss, verb, None) for verb in ("value", "value_grad", "smoothness"))
    if not all(map(callable, verbs)) or getattr(loss, "target", None) not in CURES:
        raise TypeError(
            f"loss must be a name in {sorted(LOSSES)}, a Loss, or an object with methods value, "
            f"value_grad, smoothness and a target in {list(CURES)}; got {loss!r}"
        )
    return loss


# --- for the tests ---

def _generic(Loss loss not None, Y, O, w):
    """Value, gradient and curvature by the loops of `Loss` itself, n >= 1."""
    cdef const double[:, ::1] outputs = matrix(O, "O", -1, -1)
    cdef Py_ssize_t n = outputs.shape[0], m = outputs.shape[1]
    cdef const double[:, ::1] y = loss.targets(Y, n, m)
    cdef const double[::1] weights = as_weights(w, "w", n)
    G, C = np.empty((2, n, m))
    cdef double[:, ::1] g = G, h = C
    cdef double value = Loss.rows(
        loss, &y[0, 0], &outputs[0, 0], &weights[0], &g[0, 0], n, m, y.shape[1]
    )
    Loss.curvature_rows(
        loss, &y[0, 0], &outputs[0, 0], &weights[0], &h[0, 0], n, m, y.shape[1]
    )
    return value, G, C


def _exp_log1p(const double[::1] x not None):
    """The vectorised exp(x), x <= 600, and log(1 + x), x >= 0; len(x) >= 1."""
    e, l = np.empty((2, x.shape[0]))
    cdef double[::1] e_view = e, l_view = l
    loops.exp(&x[0], &e_view[0], x.shape[0])
    loops.log1p(&x[0], &l_view[0], x.shape[0])
    return e, l
