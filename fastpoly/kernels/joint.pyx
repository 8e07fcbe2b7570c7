"""The smooth part of the joint descent over H and V, in one pass over blocks of rows:

    F(H, V, b, W) = sum_i w_i l(y_i, o_i),    o_i = V's(H x_i) + b + W'x_i

    s_r = (h_r'x)^2                                  squared
    s_r = 1/2 ((h_r'x)^2 - (h_r*h_r)'(x*x))          anova

X (n, d), H (k, d), V (k, m), b (m,), W (d, m); b and W only with `linear`. In NumPy:

    Z = X @ H.T                                      Q = X**2 @ (H**2).T
    S = Z**2                                         S = (Z**2 - Q) / 2
    O = S @ V + b + X @ W
    value, D = loss.value_grad(Y, O, w)
    GV, gb, GW, M = S.T @ D, D.sum(0), X.T @ D, D @ V.T
    GH = 2 * (M * Z).T @ X                           GH = (M * Z).T @ X - (M.T @ X**2) * H

A block of rows goes through all of it while it is in cache: no array of n x k numbers exists.
`joint_rows.pyx` knows how rows are stored. A pass is cut into fixed shares of the rows with sums of
their own, which are added in order: the bits depend on the number of threads alone.
"""

from collections import namedtuple

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.string cimport memset

from fastpoly.kernels.joint_rows cimport JointRows, make_joint_rows
from fastpoly.kernels.loss cimport Loss
from fastpoly.kernels.matrix cimport Matrix
from fastpoly.kernels.memory cimport overlap
from fastpoly.kernels.runtime cimport (
    effective_n_threads, flop_seconds, run_shares, shares_for, threads_for,
)

from fastpoly.kernels.checks import as_float_array, as_output, as_weights
from fastpoly.kernels.features import ACTIVATIONS, make_features
from fastpoly.kernels.linear import LinearTerms

cdef extern from *:
    """
    static inline void fp_prefetch(const double *p, Py_ssize_t size) {
        for (Py_ssize_t i = 0; i < size; i += 8) __builtin_prefetch(p + i, 0, 2);
    }
    """
    void prefetch "fp_prefetch"(const double* p, Py_ssize_t size) noexcept nogil

cdef enum:
    LINE = 8                         # doubles of a cache line
    APART = 16                       # doubles between two threads' memory: no shared cache line

cdef double RANGE_SECONDS = 0.1      # of a pass, after which Ctrl-C is heard


Curvature = namedtuple("Curvature", ["basis", "output", "intercept", "linear"], module=__name__)
Curvature.__doc__ = """Sums over rows for a preconditioner of the joint descent.

With C (n, m) the weighted second derivatives of the loss, Z = X @ H.T and U = C @ (V**2).T:

    basis (k, d)      4 (U * Z**2).T @ X**2, or sum_i u_ir x_ij^2 (z_ir - x_ij h_rj)^2 for anova
    output (k, k)     S.T @ (C.mean(1)[:, None] * S)
    intercept (m,)    C.sum(0)             None without linear terms
    linear (d, m)     (X**2).T @ C         None without linear terms
"""


cdef inline Py_ssize_t whole_lines(Py_ssize_t size) noexcept nogil:
    return (size + LINE - 1) // LINE * LINE


cdef class JointObjective:
    """F over H, V and the linear terms: data, loss, targets and weights.

    Parameters
    ----------
    X : Matrix, (n, d)
    loss : Loss or object with `value_grad(Y, O, w)`
        A loss written in Python sees all rows at once: its pass is not fused.
    Y : ndarray, (n, 1 or m)
        Targets as `loss.encode` returns them.
    n_outputs : int
    w : array-like, (n,), optional
        Sample weights.
    activation : {"squared", "anova"}
    linear : bool
        Whether the model has an intercept and linear terms beside the network.
    n_threads : int or None
        At most as many threads; short passes use one.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.joint import JointObjective
    >>> from fastpoly.kernels.losses import get_loss
    >>> from fastpoly.kernels.matrix import as_matrix
    >>> X, Y = as_matrix([[1.0, 2.0], [3.0, 0.0]]), np.array([[5.0], [9.0]])
    >>> objective = JointObjective(X, get_loss("squared"), Y, 1)
    >>> value, GH, GV, _, _ = objective.value_grad([[1.0, 1.0]], [[1.0]])
    >>> value, GH, GV
    (8.0, array([[24., 48.]]), array([[36.]]))
    """

    def __init__(self, Matrix X not None, loss, Y, Py_ssize_t n_outputs, w=None, *,
                 activation="squared", bint linear=False, n_threads=1):
        if self.rows is not None:
            raise TypeError("a JointObjective cannot be made a second time")
        if n_outputs < 1:
            raise ValueError(f"n_outputs must be at least 1, got {n_outputs}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
        cdef int threads = effective_n_threads(n_threads)
        w = as_weights(w, "w", X.n)
        if isinstance(loss, Loss):
            Y = (<Loss> loss).targets(Y, X.n, n_outputs).base
            if Y.shape[1] == 1:
                Y = Y.copy()  # class codes are indices: nobody else may change them
            self.compiled = loss
        else:
            Y = as_float_array(Y, "Y", (X.n, None))
        cdef JointRows rows = make_joint_rows(X, activation == "anova", linear, n_outputs)
        self.X, self.loss, self.linear, self.n_threads = X, loss, linear, threads
        self.n, self.d, self.m = X.n, X.d, n_outputs
        self.Y, self.w = Y, w
        self.Y_rows = Y if rows.order is None else Y[rows.order]
        self.w_rows = w if rows.order is None or w is None else w[rows.order]
        self.spare = []
        self.rows = rows

    cdef int _check_made(self) except -1:
        if self.rows is None:
            raise TypeError("JointObjective.__init__ was not called")
        return 0

    @property
    def activation(self):
        """"squared" or "anova"."""
        self._check_made()
        return "anova" if self.rows.anova else "squared"

    @property
    def targets(self):
        """Encoded targets, (n, 1 or m)."""
        self._check_made()
        return self.Y.base

    @property
    def w_array(self):
        """Sample weights (n,), or None."""
        self._check_made()
        return None if self.w is None else self.w.base

    cdef Py_ssize_t size(self, Py_ssize_t k) noexcept nogil:
        return k * (self.d + self.m) + (self.m + self.d * self.m if self.linear else 0)

    def n_parameters(self, k):
        """Length of a packed vector [H | V | b | W] with k basis vectors."""
        self._check_made()
        return self.size(k)

    def threads_used(self, k):
        """Threads of a pass with k basis vectors: 1 where it takes less than about 2 ms."""
        self._check_made()
        return self.threads(k)

    def _pack(self, H, V, b, W):
        """[H | V | b | W] as one new vector, and k."""
        self._check_made()
        H = as_float_array(H, "H", (None, self.d), finite=False)
        V = as_float_array(V, "V", (len(H), self.m), finite=False)
        parts = [H.ravel(), V.ravel()]
        for a, name, shape in ((b, "b", (self.m,)), (W, "W", (self.d, self.m))):
            if self.linear and a is None:
                raise ValueError(f"{name} must be given: the objective has linear terms")
            if not self.linear and a is not None:
                raise ValueError(f"{name} must be None: the objective has no linear terms")
            if self.linear:
                parts.append(as_float_array(a, name, shape, finite=False).ravel())
        return np.concatenate(parts), len(H)

    def _split(self, x, k):
        """H, V, b, W as views of a packed vector."""
        d, m = self.d, self.m
        H, V, rest = np.split(x, [k * d, k * (d + m)])
        b, W = (rest[:m], rest[m:].reshape(d, m)) if self.linear else (None, None)
        return H.reshape(k, d), V.reshape(k, m), b, W

    def value_grad(self, H, V, b=None, W=None, *, bint basis=True, D=None):
        """F and its gradients.

        Parameters
        ----------
        H : array-like, (k, d)
        V : array-like, (k, m)
        b : array-like, (m,)
            With linear terms only, as W.
        W : array-like, (d, m)
        basis : bool
            Whether the gradient with respect to H is wanted.
        D : ndarray, (n, m), optional
            Memory that receives the weighted gradients with respect to the outputs.

        Returns
        -------
        value : float
        GH, GV, gb, GW : ndarray or None
            GH is None without `basis`, gb and GW without linear terms.
        """
        x, k = self._pack(H, V, b, W)
        if D is not None:
            as_output(D, "D", (self.n, self.m))
            read = [self.targets, self.w_array, *self._read()]
            if any(a is not None and np.may_share_memory(D, a) for a in read):
                raise ValueError("D must not share memory with X, Y or w; pass another array")
        g = np.empty_like(x)
        value = self._evaluate(x, k, basis, D, g)
        GH, GV, gb, GW = self._split(g, k)
        return value, GH if basis else None, GV, gb, GW

    def _read(self):
        """The arrays of X."""
        return self.X.arrays if self.X.sparse else [self.X.array]

    def _evaluate(self, x, Py_ssize_t k, bint basis, D, g):
        """`run` on arrays that were checked."""
        if self.compiled is None:
            return self._evaluate_python(x, k, basis, D, g)
        order = self.rows.order
        memory = D if D is None or order is None else np.empty_like(D)
        cdef const double[::1] parameters = x
        cdef double[::1] gradient = g
        cdef double[:, ::1] gradients = memory
        cdef double none = 0
        value = self.run(
            &parameters[0] if x.size else &none, k, basis,
            &gradients[0, 0] if D is not None and self.n else NULL,
            &gradient[0] if x.size else &none,
        )
        if memory is not D:
            D[order] = memory
        return value

    def _evaluate_python(self, x, k, basis, D, g):
        if not np.isfinite(x).all():  # a line search may ask; the answer is not a number
            for a in (g,) if D is None else (g, D):
                a[...] = np.nan
            return float("nan")
        H, V, b, W = self._split(x, k)
        GH, GV, gb, GW = self._split(g, k)
        features = make_features(self.X, H, self.activation, self.n_threads)
        value, gradients = self.loss.value_grad(
            self.targets, self.outputs(H, V, b, W), self.w_array
        )
        gradients = as_float_array(gradients, "the gradient", (self.n, self.m), finite=False)
        if D is not None:
            D[:] = gradients
        if not np.isfinite(gradients).all():
            g[:] = np.nan
            return float(value)
        GV[:] = features.pullback(gradients)
        if basis:
            GH[:] = features.basis_grad_outputs(V, gradients)
        if self.linear:
            gb[:] = gradients.sum(axis=0)
            GW[:] = LinearTerms(self.X).grad(gradients)
        return float(value)

    def value_grad_packed(self, x, Py_ssize_t k, g):
        """F and its gradient at x = [H (k, d) | V (k, m) | b (m) | W (d, m)], all in one vector.

        Parameters
        ----------
        x : ndarray of float64, (n_parameters(k),)
        k : int
            The number of basis vectors.
        g : ndarray of float64, (n_parameters(k),)
            Memory for the gradient; must not overlap x.

        Returns
        -------
        float
        """
        self._check_made()
        cdef const double[::1] parameters
        cdef double[::1] gradient
        if k < 0:
            raise ValueError(f"k must be at least 0, got {k}")
        try:
            parameters = x
        except (TypeError, ValueError):
            raise packed_error("x") from None
        try:
            gradient = g
        except (TypeError, ValueError):
            raise packed_error("g") from None
        if x is None or g is None:
            raise packed_error("x" if x is None else "g")
        cdef Py_ssize_t size = self.size(k)
        if parameters.shape[0] != size or gradient.shape[0] != size:
            name, a = ("x", x) if parameters.shape[0] != size else ("g", g)
            raise ValueError(f"{name} must have shape ({size},) for k = {k}, got {np.shape(a)}")
        if size == 0:
            return self._evaluate(np.empty(0), k, True, None, np.empty(0))
        if overlap(&parameters[0], size, &gradient[0], size):
            raise ValueError("g must not overlap x; pass another array")
        if self.compiled is None:
            return self._evaluate_python(np.asarray(x), k, True, None, g)
        return self.run(&parameters[0], k, True, NULL, &gradient[0])

    def outputs(self, H, V, b=None, W=None):
        """The outputs o_i, (n, m)."""
        x, k = self._pack(H, V, b, W)
        H, V, b, W = self._split(x, k)
        O = make_features(self.X, H, self.activation, self.n_threads).outputs(V)
        if self.linear:
            O += b
            O += LinearTerms(self.X).outputs(W)
        return O

    # --- the pass ---

    cdef int threads(self, Py_ssize_t k) noexcept nogil:
        return threads_for(self.n_threads, self.n * self.rows.seconds(k))

    cdef Py_ssize_t at_once(self, Py_ssize_t k, int threads, int n_shares) noexcept nogil:
        """Rows of a share between two looks for signals: whole blocks."""
        cdef Py_ssize_t step = self.rows.block(k)
        cdef double seconds = RANGE_SECONDS * threads / n_shares
        return max(1, <Py_ssize_t> (seconds / self.rows.seconds(k)) // step) * step

    cdef double run(
        self, const double* x, Py_ssize_t k, bint basis, double* D, double* g
    ) except? -1:
        cdef joint_pass p
        cdef int threads = self.threads(k)
        cdef Py_ssize_t step = self.rows.block(k), most, at_once
        cdef Py_ssize_t layout = whole_lines(self.rows.layout_size(k)) + APART
        p.slot = whole_lines(self.rows.sums_size(k)) + APART
        p.buffer = whole_lines(self.rows.buffer_size(k) + 2 * step * self.m) + APART
        p.n_shares = shares_for(threads, self.n * self.rows.seconds(k), p.slot)
        memory = take(
            self.spare, LINE + layout + p.n_shares * (p.slot + APART) + threads * p.buffer
        )
        cdef double[::1] view = memory
        p.objective, p.k, p.basis, p.x, p.D, p.g = <void*> self, k, basis, x, D, g
        p.P = aligned(&view[0])
        p.sums = p.P + layout
        p.buffers = p.sums + p.n_shares * p.slot
        p.values = p.buffers + threads * p.buffer
        # Laying out and adding up take about 2 ns per feature and basis vector.
        p.n_parts = threads_for(threads, flop_seconds(50.0 * k * self.d)) if self.X.sparse else 1
        most = self.n // p.n_shares + 1  # rows of the largest share
        at_once = self.at_once(k, threads, p.n_shares)
        with nogil:
            run_shares(lay_out_part, &p, p.n_parts, p.n_parts)
        p.start = 0
        while p.start < most:
            p.stop = p.start + at_once
            with nogil:
                run_shares(run_share, &p, p.n_shares, threads)
            p.start = p.stop
            if p.start < most:
                PyErr_CheckSignals()
        with nogil:
            run_shares(finish_part, &p, p.n_parts, p.n_parts)
        cdef double value = 0
        cdef int share
        for share in range(p.n_shares):
            value += p.values[share * APART]
        self.spare.append(memory)
        return value

    cdef double add_rows(
        self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k, bint basis, const double* x,
        const double* P, double* D, double* sums, double* buffer
    ) noexcept nogil:
        """The value of some rows, with their gradients added to the sums."""
        cdef Py_ssize_t step = self.rows.block(k), m = self.m, y_width = self.Y_rows.shape[1], end
        cdef double* O = buffer
        cdef double* own = O + step * m
        cdef double* gradients
        cdef const double* w = NULL
        cdef double value = 0
        buffer = own + step * m
        while first < last:
            end = min(first + step, last)
            # The targets come from memory: ask for those of the next block in time.
            if end < last:
                prefetch(&self.Y_rows[end, 0], (min(end + step, last) - end) * y_width)
            self.rows.outputs(k, first, end, x, P, O, buffer)
            if self.w_rows is not None:
                w = &self.w_rows[first]
            gradients = own if D == NULL else D + first * m
            value += self.compiled.rows(
                &self.Y_rows[first, 0], O, w, gradients, end - first, m, y_width
            )
            self.rows.add_gradient(k, basis, first, end, x, P, gradients, sums, buffer)
            first = end
        return value

    # --- curvature ---

    def curvature(self, H, V, b=None, W=None):
        """Second derivatives in H, V, b and W, as a preconditioner wants them.

        The coupling of outputs in the loss is left out, and so is the curvature of the activations:
        what is left is positive semi-definite. A loss without `curvature` counts with its
        smoothness, or with 1 where that is not finite.

        Parameters
        ----------
        H, V, b, W : array-like
            As for `value_grad`.

        Returns
        -------
        Curvature
            Named tuple (basis, output, intercept, linear); its docstring has the formulas.
        """
        x, k = self._pack(H, V, b, W)
        C = self._loss_curvature(self.outputs(H, V, b, W))
        basis, output = np.zeros((k, self.d)), np.zeros((k, k))
        intercept = C.sum(axis=0) if self.linear else None
        linear = np.zeros((self.d, self.m)) if self.linear else None
        if self.n and x.size:
            self._sum_curvature(
                x, k, C if self.rows.order is None else C[self.rows.order], basis, output, linear
            )
        return Curvature(basis, output, intercept, linear)

    def _loss_curvature(self, O):
        """C (n, m): weighted second derivatives of the loss at the outputs O."""
        w, bound = self.w_array, 1.0
        if hasattr(self.loss, "smoothness"):
            bound = float(self.loss.smoothness(self.m))
            bound = bound if np.isfinite(bound) else 1.0
        if hasattr(self.loss, "curvature"):
            C = self.loss.curvature(self.targets, O, w)
            C = as_float_array(C, "the curvature", (self.n, self.m), finite=False)
            if np.isfinite(C).all():
                return C
        C = np.full((self.n, self.m), bound)
        return C if w is None else C * w[:, None]

    def _sum_curvature(self, const double[::1] x, Py_ssize_t k, const double[:, ::1] C,
                       double[:, ::1] basis, double[:, ::1] output, double[:, ::1] linear):
        cdef joint_pass p
        cdef int threads = self.threads(k)
        cdef Py_ssize_t d = self.d, m = self.m, most, at_once, i
        cdef Py_ssize_t layout = whole_lines(self.rows.layout_size(k)) + APART
        p.slot = whole_lines(self.rows.curvature_sums_size(k)) + APART
        p.buffer = whole_lines(self.rows.curvature_buffer_size(k)) + APART
        p.n_shares = shares_for(threads, self.n * self.rows.seconds(k), p.slot)
        memory = take(
            self.spare,
            LINE + layout + p.n_shares * p.slot + threads * p.buffer + whole_lines(k * m) + APART,
        )
        cdef double[::1] view = memory
        p.objective, p.k, p.x, p.C = <void*> self, k, &x[0], &C[0, 0]
        p.P = aligned(&view[0])
        p.sums = p.P + layout
        p.buffers = p.sums + p.n_shares * p.slot
        p.squares = p.buffers + threads * p.buffer
        cdef double none = 0
        cdef double* at_basis = &basis[0, 0] if k else &none
        cdef double* at_output = &output[0, 0] if k else &none
        cdef double* at_linear = &linear[0, 0] if linear is not None else NULL
        self.rows.lay_out(k, p.x, 0, d, p.P)
        for i in range(k * m):
            p.squares[i] = x[k * d + i] * x[k * d + i]
        most = self.n // p.n_shares + 1
        at_once = self.at_once(k, threads, p.n_shares)
        p.start = 0
        while p.start < most:
            p.stop = p.start + at_once
            with nogil:
                run_shares(run_curvature_share, &p, p.n_shares, threads)
            p.start = p.stop
            if p.start < most:
                PyErr_CheckSignals()
        self.rows.finish_curvature(k, p.x, p.P, p.sums, p.slot, p.n_shares, at_basis, at_output,
                                   at_linear)
        self.spare.append(memory)

    cdef void add_curvature(
        self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t step = self.rows.block(k), end
        while first < last:
            end = min(first + step, last)
            self.rows.add_curvature(k, first, end, x, P, squares, C, sums, buffer)
            first = end


# --- what the threads of a pass do ---

cdef struct joint_pass:
    void* objective                  # JointObjective
    int n_shares, n_parts            # of the rows, of the features
    Py_ssize_t start, stop           # rows of every share that are next
    Py_ssize_t k
    bint basis
    const double* x
    double* P                        # the layout of x that the rows want
    double* D
    const double* C                  # of a pass for curvature, with the squares of V
    double* squares
    double* sums                     # one slot per share
    Py_ssize_t slot
    double* values                   # one per share, APART
    double* buffers                  # one per worker
    Py_ssize_t buffer
    double* g


cdef void lay_out_part(int part, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t d = (<JointObjective> p.objective).d
    (<JointObjective> p.objective).rows.lay_out(
        p.k, p.x, cut(d, part, p.n_parts), cut(d, part + 1, p.n_parts), p.P
    )


cdef void finish_part(int part, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t d = (<JointObjective> p.objective).d
    (<JointObjective> p.objective).rows.finish(
        p.k, p.basis, p.x, p.P, p.sums, p.slot, p.n_shares, cut(d, part, p.n_parts),
        cut(d, part + 1, p.n_parts), p.g
    )


cdef void run_share(int share, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t n = (<JointObjective> p.objective).n
    cdef Py_ssize_t begin = n * share // p.n_shares, end = n * (share + 1) // p.n_shares
    cdef double* sums = p.sums + share * p.slot
    cdef double* value = p.values + share * APART
    if p.start == 0:
        memset(sums, 0, p.slot * sizeof(double))
        value[0] = 0
    value[0] += (<JointObjective> p.objective).add_rows(
        begin + p.start, min(begin + p.stop, end), p.k, p.basis, p.x, p.P, p.D, sums,
        p.buffers + worker * p.buffer
    )
    if begin + p.start < end <= begin + p.stop:
        (<JointObjective> p.objective).rows.complete(p.k, p.x, p.P, sums)


cdef void run_curvature_share(int share, int worker, void* job) noexcept nogil:
    cdef joint_pass* p = <joint_pass*> job
    cdef Py_ssize_t n = (<JointObjective> p.objective).n
    cdef Py_ssize_t begin = n * share // p.n_shares, end = n * (share + 1) // p.n_shares
    cdef double* sums = p.sums + share * p.slot
    if p.start == 0:
        memset(sums, 0, p.slot * sizeof(double))
    (<JointObjective> p.objective).add_curvature(
        begin + p.start, min(begin + p.stop, end), p.k, p.x, p.P, p.squares, p.C, sums,
        p.buffers + worker * p.buffer
    )


cdef object packed_error(str name):
    kind = "" if name == "x" else ", writeable"
    return ValueError(f"{name} must be a one-dimensional, contiguous{kind} array of float64")


cdef object take(list spare, Py_ssize_t size):
    """Memory for one pass: that of an earlier one where it is large enough.

    Two Python threads may be in a pass at once: a list hands each piece to one of them.
    """
    try:
        memory = spare.pop()
    except IndexError:
        return np.empty(size)
    return memory if len(memory) >= size else np.empty(size)


cdef inline double* aligned(double* p) noexcept nogil:
    """The next address that begins a cache line."""
    cdef uintptr_t line = LINE * sizeof(double)
    return <double*> ((<uintptr_t> p + line - 1) // line * line)


cdef inline Py_ssize_t cut(Py_ssize_t d, int part, int n_parts) noexcept nogil:
    """Where the features of a part begin: at a whole cache line."""
    return d if part == n_parts else d * part // n_parts // LINE * LINE
