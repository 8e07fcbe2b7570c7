"""The operators Gamma_c of all m outputs, applied in one pass over X.

    squared:  Gamma_c = X' diag(D_:c) X
    anova:    Gamma_c = 1/2 (X' diag(D_:c) X - diag(sum_i D_ic x_i*x_i))

X (n, d), D (n, m). There are three methods; in NumPy, with the matrices G = Gamma (m, d, d):

    matvecs(B) (d, m)     np.einsum("cij,jc->ic", G, B)
    forms(h) (m,)         np.einsum("cij,i,j->c", G, h, h)
    combine(w, h) (d,)    np.einsum("c,cij,j->i", w, G, h)

One pass over all outputs pays off because a row of X is fetched once, and because the inner loop
over outputs has a fixed width. `explicit.make_gamma` chooses between the row forms here and
explicit matrices.
"""

import numpy as np

from libc.string cimport memset

from fastpoly.kernels.blas cimport SERIAL_PRODUCT, product, product_tn
from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.matrix cimport CsrMatrix, Matrix
from fastpoly.kernels.memory cimport APART, LINE, whole_lines
from fastpoly.kernels.rows cimport csr_rows, rows_of
from fastpoly.kernels.runtime cimport (
    effective_n_threads, flop_seconds, run_shares, shares_for, threads_for,
)

from fastpoly.kernels.checks import as_float_array

cdef const gamma_loops* loops = choose_gamma_loops()

cdef enum:
    MATVECS = 0
    FORMS = 1
    COMBINE = 2


cdef Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    """A slot of `size` doubles that shares no cache line with the next one."""
    return whole_lines(size) + APART


cdef struct gamma_pass:
    void* gamma                      # RowGamma
    int verb
    const double* w
    const double* b
    double* out
    Py_ssize_t size
    double* work


cdef void run_share(int share, int worker, void* job) noexcept nogil:
    cdef gamma_pass* p = <gamma_pass*> job
    (<RowGamma> p.gamma).share(p.verb, share, worker, p.w, p.b, p.out, p.size, p.work)


cdef class Gamma:
    """Base class: any m symmetric operators that can be applied together.

    A subclass sets d and m through `_set_shape` and defines `apply`; the methods follow from it.
    """

    cdef void apply(self, const double* B, double* out, double* work) noexcept nogil:
        memset(out, 0, self.d * self.width * sizeof(double))

    cdef Py_ssize_t work_size(self) noexcept nogil:
        return 2 * self.d * self.width

    cdef void forms_into(self, const double* h, double* q, double* work) noexcept nogil:
        cdef Py_ssize_t i, c
        cdef double* B = work
        cdef double* out = work + self.d * self.width
        for i in range(self.d):
            for c in range(self.width):
                B[i * self.width + c] = h[i] if c < self.m else 0
        self.apply(B, out, out + self.d * self.width)
        memset(q, 0, self.width * sizeof(double))
        for i in range(self.d):
            for c in range(self.m):
                q[c] += h[i] * out[i * self.width + c]

    cdef void combine_into(
        self, const double* w, const double* h, double* out, double* work
    ) noexcept nogil:
        cdef Py_ssize_t i, c
        cdef double* B = work
        cdef double* G = work + self.d * self.width
        for i in range(self.d):
            for c in range(self.width):
                B[i * self.width + c] = h[i] * w[c] if c < self.m else 0
        self.apply(B, G, G + self.d * self.width)
        for i in range(self.d):
            out[i] = 0
            for c in range(self.m):
                out[i] += G[i * self.width + c]

    cdef int apply_checked(self, const double* B, double* out, double* work) except -1:
        with nogil:
            self.apply(B, out, work)
        return 0

    cdef int _set_shape(self, Py_ssize_t d, Py_ssize_t m) except -1:
        if self.m:
            raise ValueError("a Gamma is made once; make another one")
        if d < 1 or m < 1:
            raise ValueError(f"Gamma needs at least one feature and one output, got {d} and {m}")
        self.d, self.m, self.width = d, m, (m + 3) // 4 * 4

    cdef int _check_made(self) except -1:
        if not self.m:
            raise ValueError("this Gamma was never initialized")

    def matvecs(self, B, *, bint finite=True):
        """Gamma_c B_:c for every output.

        Parameters
        ----------
        B : array-like, (d, m)
        finite : bool
            Whether to refuse NaN and infinity, here and below. It need not be done twice.

        Returns
        -------
        ndarray, (d, m)
        """
        self._check_made()
        B = as_float_array(B, "B", (self.d, self.m), finite=finite)
        if self.m < self.width:
            B = np.pad(B, ((0, 0), (0, self.width - self.m)))
        cdef const double[:, ::1] padded_B = B
        cdef double[:, ::1] out = np.empty((self.d, self.width))
        cdef double[::1] work = np.empty(self.work_size() + 1)
        with nogil:
            self.apply(&padded_B[0, 0], &out[0, 0], &work[0])
        return np.ascontiguousarray(out.base[:, :self.m])

    def forms(self, h, *, bint finite=True):
        """The quadratic forms q_c = h' Gamma_c h.

        Parameters
        ----------
        h : array-like, (d,)
        finite : bool

        Returns
        -------
        ndarray, (m,)
        """
        self._check_made()
        cdef const double[::1] vector = as_float_array(h, "h", (self.d,), finite=finite)
        cdef double[::1] q = np.empty(self.width)
        cdef double[::1] work = np.empty(self.work_size() + 1)
        with nogil:
            self.forms_into(&vector[0], &q[0], &work[0])
        return q.base[:self.m]

    def combine(self, w, h, *, bint finite=True):
        """The weighted combination sum_c w_c Gamma_c h.

        Parameters
        ----------
        w : array-like, (m,)
        h : array-like, (d,)
        finite : bool

        Returns
        -------
        ndarray, (d,)
        """
        self._check_made()
        cdef const double[::1] vector = as_float_array(h, "h", (self.d,), finite=finite)
        cdef double[::1] weights = np.zeros(self.width)
        weights.base[:self.m] = as_float_array(w, "w", (self.m,), finite=finite)
        cdef double[::1] out = np.empty(self.d)
        cdef double[::1] work = np.empty(self.work_size() + 1)
        with nogil:
            self.combine_into(&weights[0], &vector[0], &out[0], &work[0])
        return out.base

    def dense(self):
        """The operators as an array (m, d, d); meant for small d."""
        G = np.empty((self.m, self.d, self.d))
        for j in range(self.d):
            B = np.zeros((self.d, self.m))
            B[j] = 1
            G[:, :, j] = self.matvecs(B).T
        return G

    def combined(self, S):
        """The operators sum_c S_ce Gamma_c for every column e of S (m, e); they are formed."""
        from fastpoly.kernels.explicit import ExplicitGamma  # which imports this module

        self._check_made()
        S = as_float_array(S, "S", (self.m, None))
        return ExplicitGamma(np.tensordot(S.T, self.dense(), 1))


cdef class RowGamma(Gamma):
    """Gamma_c as sums over the rows of X; subclasses know how rows are stored.

    D is not copied where it is float64 in C order: do not change it while the Gamma is in use.
    """

    def __init__(self, Matrix X not None, D, bint anova=False, n_threads=1):
        D = as_float_array(D, "D", (X.n, None))
        cdef int threads = effective_n_threads(n_threads)
        self._set_shape(X.d, D.shape[1])
        self.X, self.D, self.anova = X, D, anova
        self.n_threads = threads_for(threads, self.seconds())
        self.n_shares = shares_for(self.n_threads, self.seconds(), self.d * self.width)
        self.diagonal = np.empty((0, self.width))
        self.prepare()

    def combined(self, S):
        """The operators sum_c S_ce Gamma_c for every column e of S.

        Parameters
        ----------
        S : array-like, (m, e)

        Returns
        -------
        Gamma
            A Gamma with e outputs.
        """
        self._check_made()
        S = as_float_array(S, "S", (self.m, None))
        return type(self)(self.X, np.asarray(self.D) @ S, self.anova, self.n_threads)

    def dense(self):
        """The operators as an array (m, d, d), at the cost of about d / 5 passes over dense rows."""
        from fastpoly.kernels.explicit import explicit_gamma  # which imports this module

        self._check_made()
        return explicit_gamma(self.X, self.D, self.anova, self.n_threads).dense()

    cdef double seconds(self) noexcept:
        """About how long one thread takes for a pass."""
        return flop_seconds(4.0 * self.X.n * self.X.d * self.m)

    cdef int prepare(self) except -1:
        return 0

    cdef Py_ssize_t work_size(self) noexcept nogil:
        return (self.n_shares * padded(self.d * self.width)
                + self.n_threads * padded(self.row_work()))

    cdef Py_ssize_t row_work(self) noexcept nogil:
        return 0

    cdef void apply(self, const double* B, double* out, double* work) noexcept nogil:
        self.run(MATVECS, NULL, B, out, self.d * self.width, work)
        self.finish(B, out)

    cdef void forms_into(self, const double* h, double* q, double* work) noexcept nogil:
        self.run(FORMS, NULL, h, q, self.width, work)

    cdef void combine_into(
        self, const double* w, const double* h, double* out, double* work
    ) noexcept nogil:
        cdef Py_ssize_t i, c
        cdef double diagonal
        self.run(COMBINE, w, h, out, self.d, work)
        if self.anova:
            for i in range(self.d):
                diagonal = 0
                if self.diagonal.shape[0]:
                    for c in range(self.m):
                        diagonal += w[c] * self.diagonal[i, c]
                out[i] = 0.5 * (out[i] - diagonal * h[i])

    cdef void finish(self, const double* B, double* out) noexcept nogil:
        """out = 1/2 (out - diagonal * B) for anova."""
        cdef Py_ssize_t i
        cdef Py_ssize_t size = self.d * self.width
        cdef const double* diagonal
        if self.anova and self.diagonal.shape[0]:
            diagonal = &self.diagonal[0, 0]
            for i in range(size):
                out[i] = 0.5 * (out[i] - diagonal[i] * B[i])
        elif self.anova:
            for i in range(size):
                out[i] *= 0.5

    cdef void run(
        self, int verb, const double* w, const double* b, double* out, Py_ssize_t size,
        double* work
    ) noexcept nogil:
        """Run a method over all rows, in fixed shares whose partial sums are added in order."""
        cdef gamma_pass p
        cdef int share
        cdef Py_ssize_t i, slot = padded(self.d * self.width)
        cdef double* partial
        p.gamma, p.verb, p.w, p.b, p.out, p.size, p.work = <void*> self, verb, w, b, out, size, work
        run_shares(run_share, &p, self.n_shares, self.n_threads)
        for share in range(1, self.n_shares):
            partial = work + share * slot + LINE
            for i in range(size):
                out[i] += partial[i]

    cdef void share(
        self, int verb, int share, int worker, const double* w, const double* b, double* out,
        Py_ssize_t size, double* work
    ) noexcept nogil:
        cdef Py_ssize_t slot = padded(self.d * self.width)
        cdef Py_ssize_t first = self.X.n * share // self.n_shares
        cdef Py_ssize_t last = self.X.n * (share + 1) // self.n_shares
        cdef double* target = out if share == 0 else work + share * slot + LINE
        cdef double* own = (
            work + self.n_shares * slot + worker * padded(self.row_work()) + LINE
        )
        memset(target, 0, size * sizeof(double))
        if verb == MATVECS:
            self.add_rows(first, last, b, target, own)
        elif verb == FORMS:
            self.add_forms(first, last, b, target, own)
        else:
            self.add_combine(first, last, w, b, target, own)

    cdef void add_rows(
        self, Py_ssize_t first, Py_ssize_t last, const double* B, double* out, double* work
    ) noexcept nogil:
        pass

    cdef void add_forms(
        self, Py_ssize_t first, Py_ssize_t last, const double* h, double* q, double* work
    ) noexcept nogil:
        pass

    cdef void add_combine(
        self, Py_ssize_t first, Py_ssize_t last, const double* w, const double* h, double* out,
        double* work
    ) noexcept nogil:
        pass


cdef class CsrGamma(RowGamma):
    """CSR rows. Rows with exactly two entries (one user, one item) have their own loops."""

    def __init__(self, Matrix X not None, D, bint anova=False, n_threads=1):
        if not X.sparse:
            raise TypeError("X must be a CsrMatrix; DenseGamma takes the other ones")
        D = as_float_array(D, "D", (X.n, None), finite=False)
        rows, order = (<CsrMatrix> X).grouped()
        RowGamma.__init__(self, rows, D if order is None else D.take(order, axis=0), anova,
                          n_threads)

    cdef double seconds(self) noexcept:
        cdef double entries = len((<CsrMatrix> self.X).arrays[0])
        return 2 * flop_seconds(4.0 * self.m * entries + 2.0 * self.X.n * self.m)

    cdef int prepare(self) except -1:
        cdef csr_rows rows = rows_of(self.X)
        # The loops over pairs leave the diagonal out themselves.
        if self.anova and not (<CsrMatrix> self.X).pairs:
            self.diagonal = np.zeros((self.d, self.width))
            if self.X.n:
                with nogil:
                    loops.diagonal(&rows, 0, self.X.n, &self.D[0, 0], self.m,
                                   &self.diagonal[0, 0])

    cdef void add_rows(
        self, Py_ssize_t first, Py_ssize_t last, const double* B, double* out, double* work
    ) noexcept nogil:
        cdef csr_rows rows = rows_of(<CsrMatrix> self.X)
        if first == last:
            return
        if (<CsrMatrix> self.X).pairs:
            loops.pair_matvecs(&rows, self.anova, first, last, &self.D[0, 0], self.m, B, out)
        else:
            loops.matvecs(&rows, first, last, &self.D[0, 0], self.m, B, out)

    cdef void add_forms(
        self, Py_ssize_t first, Py_ssize_t last, const double* h, double* q, double* work
    ) noexcept nogil:
        cdef csr_rows rows = rows_of(<CsrMatrix> self.X)
        if first < last:
            loops.forms(&rows, self.anova, first, last, &self.D[0, 0], self.m, h, q)

    cdef void add_combine(
        self, Py_ssize_t first, Py_ssize_t last, const double* w, const double* h, double* out,
        double* work
    ) noexcept nogil:
        cdef csr_rows rows = rows_of(<CsrMatrix> self.X)
        if first == last:
            return
        if self.anova and (<CsrMatrix> self.X).pairs:
            loops.pair_combine(&rows, first, last, &self.D[0, 0], self.m, w, h, out)
        else:
            loops.combine(&rows, first, last, &self.D[0, 0], self.m, w, h, out)


cdef class DenseGamma(RowGamma):
    """Dense rows, a block at a time: Z = X_b B, Z *= D_b, out += X_b' Z."""

    cdef int prepare(self) except -1:
        cdef Py_ssize_t n = self.X.n, first, last, i
        self.block = max(8, min(256, SERIAL_PRODUCT // (self.d * self.m), 32768 // self.d))
        if not self.anova:
            return 0
        self.diagonal = np.zeros((self.d, self.width))
        cdef double[::1] squares = np.empty(self.block * self.d)
        cdef double[::1] buffer = np.empty(self.block * self.d)
        cdef const double* x
        with nogil:
            first = 0
            while first < n:
                last = min(first + self.block, n)
                x = self.X.dense_rows(first, last, &buffer[0])
                for i in range((last - first) * self.d):
                    squares[i] = x[i] * x[i]
                product_tn(self.d, self.m, last - first, &squares[0], self.d,
                           &self.D[first, 0], self.m, 1, &self.diagonal[0, 0], self.width)
                first = last

    cdef Py_ssize_t row_work(self) noexcept nogil:
        return self.block * (self.d + self.m)

    cdef void add_rows(
        self, Py_ssize_t first, Py_ssize_t last, const double* B, double* out, double* work
    ) noexcept nogil:
        cdef Py_ssize_t start, stop, i
        cdef double* z = work + self.block * self.d
        cdef const double* x
        cdef const double* gradient
        start = first
        while start < last:
            stop = min(start + self.block, last)
            x = self.X.dense_rows(start, stop, work)
            product(stop - start, self.m, self.d, x, self.d, B, self.width, 0, z, self.m)
            gradient = &self.D[start, 0]
            for i in range((stop - start) * self.m):
                z[i] *= gradient[i]
            product_tn(self.d, self.m, stop - start, x, self.d, z, self.m, 1, out, self.width)
            start = stop

    cdef void add_forms(
        self, Py_ssize_t first, Py_ssize_t last, const double* h, double* q, double* work
    ) noexcept nogil:
        cdef Py_ssize_t start, stop
        cdef const double* x
        start = first
        while start < last:
            stop = min(start + self.block, last)
            x = self.X.dense_rows(start, stop, work)
            loops.dense_forms(x, self.anova, stop - start, self.d, &self.D[start, 0], self.m, h, q)
            start = stop

    cdef void add_combine(
        self, Py_ssize_t first, Py_ssize_t last, const double* w, const double* h, double* out,
        double* work
    ) noexcept nogil:
        cdef Py_ssize_t start, stop
        cdef const double* x
        start = first
        while start < last:
            stop = min(start + self.block, last)
            x = self.X.dense_rows(start, stop, work)
            loops.dense_combine(x, stop - start, self.d, &self.D[start, 0], self.m, w, h, out)
            start = stop
