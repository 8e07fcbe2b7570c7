"""The base class of all losses: loops over rows in C, methods on matrices in Python.

A loss turns one row of outputs o (m,) and its target y into a value and a gradient. It never sees
X. Values are sums over the rows, not means. A subclass defines `row`, the loss of one row; see
`losses.pyx`.
"""

from libc.math cimport INFINITY, NAN, floor
from libc.stdint cimport uintptr_t

import numpy as np

from fastpoly.kernels.checks import (
    as_float_array, as_n_outputs, as_output, as_weights, encode_targets,
)
from fastpoly.kernels.verbs import reduce_object

from fastpoly.kernels.losses_loops cimport choose_losses_loops, losses_loops
from fastpoly.kernels.memory cimport LINE, overlap
from fastpoly.kernels.runtime cimport effective_n_threads, loss_seconds, run_shares, threads_for

cdef const losses_loops* loops = choose_losses_loops()

# The rows are always cut into the same chunks, whose sums are added in order. So the value has the
# same bits for any number of threads, and long sums stay accurate.
cdef enum:
    MAX_CHUNKS = 256
    MIN_CHUNK_ROWS = 1024


cdef class Loss:
    """Turns one row of outputs and its target into a value, a gradient and a curvature.

    Attributes
    ----------
    name : str
        The key in `LOSSES`.
    target : {"label", "sign", "real"}
        The form in which `encode` returns y: class codes (n, 1), entries -1 or +1 (n, m), or
        numbers (n, m).

    Notes
    -----
    Losses have no state: two of the same class are equal. A subclass with parameters must define
    ``__eq__`` and ``__hash__``. If it keeps them in C attributes, it must also define
    ``__reduce__``; otherwise it can be neither pickled nor copied.
    """

    name = "loss"
    target = "real"
    shift_invariant = False  # whether l(y, o + t 1) = l(y, o)
    equivariant = False  # whether l(a y + b, a o + b) = a^2 l(y, o): targets can be rescaled
    robust = False  # whether regressors measure targets by their median and its deviations
    link = "identity"  # "log": outputs are logarithms of what is predicted
    log_odds = False  # whether outputs are log odds, so that there are probabilities

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
        cdef bint label = self.reads_labels() or self.target == "label"
        cdef const double[:, ::1] view = matrix(Y, "Y", n, 1 if label else m)
        if label and n and not (loops.all_within(&view[0, 0], n, 0.0, m) and whole(view, n)):
            encode_targets("label", Y, m)
        return view

    cdef bint reads_labels(self) noexcept nogil:
        return False

    # --- in Python: matrices ---

    def encode(self, y, n_outputs=None):
        """Check the targets y and return them in the form that the other methods take.

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
        self.targets(Y, len(Y), as_n_outputs(n_outputs))

    def value(self, Y, O, w=None):
        """sum_i w_i l(y_i, o_i).

        Parameters
        ----------
        Y : array, as `encode` returns it
        O : array of shape (n, m)
            Outputs. NaN and infinity are allowed; the result is then NaN or infinity.
        w : array of shape (n,), optional
            Weights >= 0; a row of weight 0 is ignored. By default all ones.

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
            Memory for the gradient; must not overlap the inputs.
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

        Parameters are those of `value_grad`. At a kink, the value is that of the flat side. A loss
        that does not define its Hessian gives `smoothness` everywhere.

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
        """The packed upper triangles of the weighted Hessians of the rows, (n, m (m + 1) / 2).

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
        with nogil:
            for i in range(n if m else 0):
                self.hessian_row(&y[i, 0], &outputs[i, 0], &H[i, 0], &work[0], m)
                if weights is not None:
                    scale(&H[i, 0], weights[i], H.shape[1])
        return H.base

    def conjugate(self, Y, U, double scale=1.0, w=None):
        """The convex conjugate sum_i w_i l*(y_i, scale u_i / w_i), for duality gaps.

        l*(y, u) = max_o u'o - l(y, o). It is infinity where the maximum is unbounded, and NaN if
        the loss does not define its conjugate.

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
        with nogil:
            for i in range(n if m else 0):
                if weights is not None:
                    weight = weights[i]
                if weight > 0.0:
                    total += weight * self.conjugate_row(&y[i, 0], &u[i, 0], scale / weight, m)
        return total

    def smoothness(self, n_outputs):
        """Lipschitz constant of the gradient in the l2 norm, for n_outputs outputs.

        Infinity means that it is not known; a solver must then search for its step size.

        Examples
        --------
        >>> from fastpoly.kernels.losses import MulticlassSquaredHinge
        >>> MulticlassSquaredHinge().smoothness(5)
        10.0
        """
        return self.bound(as_n_outputs(n_outputs))

    def __reduce__(self):
        return reduce_object(self, Loss)

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))

    def __repr__(self):
        return f"{type(self).__name__}()"


# --- checks and the loop over chunks, shared by the methods above ---

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


cdef bint whole(const double[:, ::1] codes, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint fine = True
    for i in range(n):
        fine &= codes[i, 0] == floor(codes[i, 0])
    return fine


cdef bint misaligned(const double* p) noexcept:
    return <uintptr_t> p % sizeof(double) != 0


cdef double evaluate(
    Loss loss, object targets, const double[:, ::1] O, object weights, object out,
    int n_threads, bint curvature
) except? -1.0:
    """Check the arguments and run the loss over O; write gradients or curvatures to out."""
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


cdef struct loss_pass:
    void* loss                       # Loss
    const double* Y
    const double* O
    const double* w
    double* G
    Py_ssize_t n, m, y_width, size   # size: rows of a chunk
    double* values                   # one per chunk, a cache line apart


cdef void run_chunk(int chunk, int worker, void* job) noexcept nogil:
    cdef loss_pass* p = <loss_pass*> job
    cdef Py_ssize_t first = chunk * p.size
    p.values[chunk * LINE] = (<Loss> p.loss).rows(
        p.Y + first * p.y_width, p.O + first * p.m,
        <const double*> NULL if p.w == NULL else p.w + first,
        NULL if p.G == NULL else p.G + first * p.m, min(p.size, p.n - first), p.m, p.y_width,
    )


cdef double sum_chunks(
    Loss loss, const double* Y, const double* O, const double* w, double* G,
    Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width, int n_threads
) noexcept nogil:
    cdef loss_pass p
    cdef double[MAX_CHUNKS * LINE] values
    cdef double value = 0.0
    cdef int chunk, n_chunks
    p.loss, p.Y, p.O, p.w, p.G = <void*> loss, Y, O, w, G
    p.n, p.m, p.y_width, p.values = n, m, y_width, values
    p.size = max(MIN_CHUNK_ROWS, (n + MAX_CHUNKS - 1) // MAX_CHUNKS)
    n_chunks = <int> ((n + p.size - 1) // p.size)
    run_shares(run_chunk, &p, n_chunks, threads_for(n_threads, loss_seconds(<double> n * m)))
    for chunk in range(n_chunks):
        value += values[chunk * LINE]
    return value
