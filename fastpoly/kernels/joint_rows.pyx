"""Blocks of rows in the joint pass of `joint.pyx`, for each way in which X is stored.

While a block is in cache, it goes forward to its outputs O, and backward from the loss gradients D
to sums of gradients. With Z = X @ H.T and S = s(Z):

    O = S @ V + b + X @ W                    forward
    GV += S.T @ D,  gb += D.sum(0),  GW += X.T @ D,  M = D @ V.T
    GH += 2 (M * Z).T @ X                    squared
    GH += (M * Z).T @ X - (M.T @ X**2) * H   anova

Dense rows go through BLAS. CSR rows gather rows of H transposed, which is made once per pass.
These classes have no state except X; `joint.pyx` gives them memory, threads and the loss.
"""

from fastpoly.kernels.blas cimport SERIAL_PRODUCT, product, product_nt, product_tn
from fastpoly.kernels.features_loops cimport choose_features_loops, features_loops
from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.joint_loops cimport (
    choose_joint_loops, joint_loops, pair_model, pair_sums,
)
from fastpoly.kernels.matrix cimport CsrMatrix, DenseMatrix, Matrix
from fastpoly.kernels.rows cimport csr_rows, rows_of
from fastpoly.kernels.runtime cimport flop_seconds, loss_seconds

cdef const joint_loops* loops = choose_joint_loops()
cdef const features_loops* csr_loops = choose_features_loops()
cdef const gamma_loops* diagonal_loops = choose_gamma_loops()

cdef enum:
    CACHE_DOUBLES = 49152            # 384 KB of the second-level cache, which a block may fill
    MOST_ROWS = 256                  # largest block: its outputs stay in the cache


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + 3) // 4 * 4


cdef inline void add_shares(
    const double* sums, Py_ssize_t slot, int n_shares, Py_ssize_t size, double* out
) noexcept nogil:
    """out = the sums of all shares, added in order."""
    cdef Py_ssize_t i
    cdef int t
    for i in range(size):
        out[i] = sums[i]
    for t in range(1, n_shares):
        for i in range(size):
            out[i] += sums[t * slot + i]


cdef inline void add_padded(
    const double* sums, Py_ssize_t slot, int n_shares, Py_ssize_t first, Py_ssize_t last,
    Py_ssize_t m, double* out
) noexcept nogil:
    """Rows first..last-1 of out (d, m) = the sums (d, m padded) of all shares."""
    cdef Py_ssize_t j, c, width = padded(m)
    cdef int t
    cdef double total
    for j in range(first, last):
        for c in range(m):
            total = sums[j * width + c]
            for t in range(1, n_shares):
                total += sums[t * slot + j * width + c]
            out[j * m + c] = total


cdef class JointRows:
    """Base class; `make_joint_rows` returns the right subclass for a Matrix."""

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        return 8

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t layout_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t sums_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef void lay_out(
        self, Py_ssize_t k, const double* x, Py_ssize_t first, Py_ssize_t last, double* P
    ) noexcept nogil:
        pass

    cdef void outputs(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        double* O, double* buffer
    ) noexcept nogil:
        pass

    cdef void add_gradient(
        self, Py_ssize_t k, bint basis, Py_ssize_t first, Py_ssize_t last, const double* x,
        const double* P, const double* D, double* sums, double* buffer
    ) noexcept nogil:
        pass

    cdef void complete(
        self, Py_ssize_t k, const double* x, const double* P, double* sums
    ) noexcept nogil:
        pass

    cdef void finish(
        self, Py_ssize_t k, bint basis, const double* x, const double* P, const double* sums,
        Py_ssize_t slot, int n_shares, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        pass

    cdef Py_ssize_t curvature_buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t curvature_sums_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef void add_curvature(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil:
        pass

    cdef void finish_curvature(
        self, Py_ssize_t k, const double* x, const double* P, const double* sums, Py_ssize_t slot,
        int n_shares, double* basis, double* output, double* linear
    ) noexcept nogil:
        pass


cdef void weigh(
    const double* C, const double* S, Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double* out
) noexcept nogil:
    """out (n, k): the rows of S, each times the mean of its row of C (n, m)."""
    cdef Py_ssize_t i, r, c
    cdef double weight
    for i in range(n):
        weight = 0
        for c in range(m):
            weight += C[i * m + c]
        weight /= m
        for r in range(k):
            out[i * k + r] = weight * S[i * k + r]


include "joint_dense.pxi"
include "joint_csr.pxi"
include "joint_pairs.pxi"


cdef JointRows make_joint_rows(Matrix X, bint anova, bint linear, Py_ssize_t m):
    """The rows of X, in the form that fits the storage of X."""
    cdef JointRows rows
    order = None
    if X.sparse:
        if (<CsrMatrix> X).pairs:
            X, order = (<CsrMatrix> X).grouped()
            rows = PairJointRows.__new__(PairJointRows)
        else:
            rows = CsrJointRows.__new__(CsrJointRows)
        (<CsrJointRows> rows).entries = (
            len((<CsrMatrix> X).arrays[0]) / max(1, X.n) + X.augment
        )
    else:
        rows = DenseJointRows.__new__(DenseJointRows)
    rows.X, rows.order, rows.anova, rows.linear, rows.m = X, order, anova, linear, m
    return rows
