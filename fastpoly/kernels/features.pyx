"""Activations of X on the basis vectors H, a block of rows at a time, and sums over them.

    squared:  S_ir = (h_r'x_i)^2                                   (X @ H.T) ** 2
    anova:    S_ir = sum_{a<b} h_ra x_ia h_rb x_ib                  ((X @ H.T) ** 2
              = 1/2 ((h_r'x_i)^2 - (h_r*h_r)'(x_i*x_i))              - (X * X) @ (H * H).T) / 2

X (n, d), H (k, d), S (n, k); V (k, m), D (n, m), M (n, k).

    outputs(V) (n, m)       S @ V
    pullback(D) (k, m)      S.T @ D
    basis_grad(M) (k, d)    gradient of sum(S * M) with respect to H:
        squared   2 (M * Z).T @ X                              with Z = X @ H.T
        anova     (M * Z).T @ X - (M.T @ (X * X)) * H

Only `activations` holds an n x k matrix. The other methods compute each block of rows in a buffer
that stays in cache, and use it there. `features_csr.pxi` and `features_dense.pxi` compute a block.
"""

import numpy as np

from fastpoly.kernels.blas cimport SERIAL_PRODUCT, product, product_nt, product_tn
from fastpoly.kernels.features_loops cimport choose_features_loops, features_loops
from fastpoly.kernels.matrix cimport CsrMatrix, Matrix
from fastpoly.kernels.memory cimport APART, ROW_BLOCK_DOUBLES
from fastpoly.kernels.rows cimport csr_rows, rows_of
from fastpoly.kernels.runtime cimport (
    effective_n_threads, flop_seconds, run_shares, shares_for, threads_for,
)

from fastpoly.kernels.checks import as_float_array, as_output

cdef const features_loops* loops = choose_features_loops()

ACTIVATIONS = ("squared", "anova")

cdef enum:
    OUTPUTS = 0
    PULLBACK = 1
    BASIS_GRAD = 2


cdef void run_share(int share, int worker, void* job) noexcept nogil:
    cdef features_pass* p = <features_pass*> job
    cdef double* sums = p.sums + share * p.slot
    cdef double* buffer = p.buffers + worker * p.buffer
    cdef Py_ssize_t n = (<Features> p.features).n
    cdef Py_ssize_t first = n * share // p.n_shares, last = n * (share + 1) // p.n_shares
    if p.verb == OUTPUTS:
        (<Features> p.features).add_outputs(first, last, p.O, p.V, p.m, buffer)
    elif p.verb == PULLBACK:
        (<Features> p.features).add_pullback(first, last, p.D, p.m, sums, buffer)
    else:
        (<Features> p.features).add_gradients(first, last, p.D, p.V, p.m, sums, buffer)


cdef Py_ssize_t serial_rows(Py_ssize_t block, Py_ssize_t per_row) noexcept nogil:
    """At most `block` rows, and few enough that BLAS keeps the product on this thread."""
    return max(1, min(block, max(8, SERIAL_PRODUCT // max(1, per_row))))


cdef class Features:
    """Activations of X on H, computed whenever they are needed; see `make_features`."""

    def __init__(self, Matrix X not None, H, bint anova=False, n_threads=1):
        if self.block:
            raise TypeError("these activations cannot be made a second time")
        # A copy, because the loops keep H squared or transposed, which must stay consistent with H.
        H = as_float_array(H, "H", (None, X.d)).copy()
        self.X, self.H, self.anova = X, H, anova
        self.n, self.k = X.n, H.shape[0]
        self.block = max(8, min(256, ROW_BLOCK_DOUBLES // max(1, self.k)))
        self.n_threads = effective_n_threads(n_threads)
        self.seconds = flop_seconds(2.0 * X.n * self.prepare() * self.k)

    def _read(self):
        """The array from which the rows are made."""
        return self.X.arrays[0] if self.X.sparse else self.X.array

    cdef double prepare(self) except -1:
        """Lay out H for the loops; return how many dense entries a row of X costs."""
        return self.X.d

    def activations(self, out=None):
        """All activations S, (n, k), in the memory `out` if that is given."""
        S = as_output(out, "out", (self.n, self.k))
        if out is not None and S.size and np.may_share_memory(S, self._read()):
            raise ValueError("out must not overlap the data; pass another array")
        if S.size:
            self._outputs(S, None)
        return S

    def blocks(self):
        """Iterate over (S of a block of rows, slice of those rows); S is overwritten."""
        cdef Py_ssize_t first, last = 0
        cdef double[:, ::1] S = np.empty((self.block, max(1, self.k)))
        cdef double[::1] buffer = np.empty(self.buffer_size() + APART)
        while last < self.n:
            first, last = last, min(last + self.block, self.n)
            if self.k:
                self.fill(first, last, &S[0, 0], &buffer[0])
            yield S.base[:last - first, :self.k], slice(first, last)

    def outputs(self, V):
        """S @ V, (n, m), without an n x k matrix."""
        V = as_float_array(V, "V", (self.k, None))
        O = np.zeros((self.n, V.shape[1]))
        if O.size and self.k:
            self._outputs(O, V)
        return O

    cdef int _outputs(self, double[:, ::1] O, const double[:, ::1] V) except -1:
        cdef features_pass p
        p.verb, p.m, p.O, p.D, p.V = OUTPUTS, O.shape[1], &O[0, 0], NULL, NULL
        if V is not None:
            p.V = &V[0, 0]
        self._run(&p, 0, self.seconds + self.product_seconds(p.m if p.V else 0))
        return 0

    cdef double product_seconds(self, Py_ssize_t m) noexcept nogil:
        """The seconds of one thread for a product of all activations with m columns."""
        return flop_seconds(2.0 * self.n * self.k * m)

    cdef object _run(self, features_pass* p, Py_ssize_t size, double seconds):
        """Run a pass that takes one thread `seconds`; return its sums, `size` numbers."""
        cdef int threads = threads_for(self.n_threads, seconds)
        p.n_shares = shares_for(threads, seconds, size)
        cdef double[:, ::1] buffers = np.empty((threads, self.buffer_size() + APART))
        cdef double[:, ::1] sums = np.zeros((p.n_shares, size + APART))
        p.features = <void*> self
        p.sums, p.slot = &sums[0, 0], sums.shape[1]
        p.buffers, p.buffer = &buffers[0, 0], buffers.shape[1]
        with nogil:
            run_shares(run_share, p, p.n_shares, threads)
        return sums.base[:, :size].sum(axis=0)

    cdef void add_outputs(
        self, Py_ssize_t first, Py_ssize_t last, double* O, const double* V, Py_ssize_t m,
        double* buffer
    ) noexcept nogil:
        """O = S V for some rows, or O = S if there is no V."""
        cdef Py_ssize_t stop, step = self.block
        if V != NULL:
            step = serial_rows(step, self.k * m)
        while first < last:
            stop = min(first + step, last)
            if V == NULL:
                self.fill(first, stop, O + first * m, buffer)
            else:
                self.fill(first, stop, buffer, buffer)
                product(stop - first, m, self.k, buffer, self.k, V, m, 0, O + first * m, m)
            first = stop

    def pullback(self, D):
        """S.T @ D, (k, m), without an n x k matrix; row r holds the forms h_r' Gamma_c h_r."""
        cdef const double[:, ::1] gradients = as_float_array(D, "D", (self.n, None))
        cdef Py_ssize_t m = gradients.shape[1]
        cdef features_pass p
        if not (self.n and self.k and m):
            return np.zeros((self.k, m))
        p.verb, p.m, p.O, p.D, p.V = PULLBACK, m, NULL, &gradients[0, 0], NULL
        sums = self._run(&p, self.k * m, self.seconds + self.product_seconds(m))
        return sums.reshape(self.k, m)

    cdef void add_pullback(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, Py_ssize_t m, double* G,
        double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t stop, step = serial_rows(self.block, self.k * m)
        while first < last:
            stop = min(first + step, last)
            self.fill(first, stop, buffer, buffer)
            product_tn(self.k, m, stop - first, buffer, self.k, D + first * m, m, 1, G, m)
            first = stop

    def basis_grad(self, M):
        """Gradient of sum(S * M) with respect to H, (k, d); M (n, k)."""
        return self._basis_grad(as_float_array(M, "M", (self.n, self.k)), None)

    def basis_grad_outputs(self, V, D):
        """`basis_grad(D @ V.T)`, (k, d), without an n x k matrix."""
        V = as_float_array(V, "V", (self.k, None))
        return self._basis_grad(as_float_array(D, "D", (self.n, V.shape[1])), V)

    cdef object _basis_grad(self, const double[:, ::1] D, const double[:, ::1] V):
        cdef features_pass p
        if self.X is None:
            raise ValueError("these Features were never initialized")
        if not (self.n and self.k and D.shape[1]):
            return np.zeros((self.k, self.X.d))
        p.verb, p.m, p.O, p.D, p.V = BASIS_GRAD, D.shape[1], NULL, &D[0, 0], NULL
        if V is not None:
            p.V = &V[0, 0]
        seconds = 2 * self.seconds + self.product_seconds(p.m if p.V else 0)
        return self._finish_grad(self._run(&p, self.grad_size(), seconds))

    cdef void add_gradients(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, const double* V, Py_ssize_t m,
        double* G, double* buffer
    ) noexcept nogil:
        """`add_basis_grad` of D, or of D V' if there is a V, for any number of rows."""
        cdef Py_ssize_t stop, step = self.block
        cdef double* M = buffer + self.scratch_size()
        cdef const double* weights
        if V != NULL:
            step = serial_rows(step, self.k * m)
        while first < last:
            stop = min(first + step, last)
            weights = D + first * m
            if V != NULL:
                product_nt(stop - first, self.k, m, weights, m, V, m, 0, M, self.k)
                weights = M
            self.add_basis_grad(first, stop, weights, G, buffer)
            first = stop

    cdef void fill(
        self, Py_ssize_t first, Py_ssize_t last, double* S, double* buffer
    ) noexcept nogil:
        pass

    cdef Py_ssize_t scratch_size(self) noexcept nogil:
        """Doubles that `fill` and `add_basis_grad` need; the first block * k are free in `fill`."""
        return self.block * self.k

    cdef Py_ssize_t buffer_size(self) noexcept nogil:
        return self.scratch_size() + self.block * self.k

    cdef Py_ssize_t grad_size(self) noexcept nogil:
        return self.k * self.X.d

    cdef void add_basis_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* M, double* G, double* buffer
    ) noexcept nogil:
        pass


include "features_csr.pxi"
include "features_dense.pxi"


def make_features(Matrix X not None, H, activation="squared", n_threads=1):
    """Activations of X on H in the form that fits how X is stored.

    Parameters
    ----------
    X : Matrix, (n, d)
    H : array-like, (k, d)
    activation : {"squared", "anova"}
    n_threads : int or None

    Returns
    -------
    Features

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.features import make_features
    >>> from fastpoly.kernels.matrix import as_matrix
    >>> X = as_matrix(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> make_features(X, [[1.0, 1.0]]).activations()
    array([[ 9.],
           [49.]])
    >>> make_features(X, [[1.0, 1.0]], "anova").activations()
    array([[ 2.],
           [12.]])
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
    kind = CsrFeatures if X.sparse else DenseFeatures
    return kind(X, H, activation == "anova", n_threads)
