# Rows of X as the joint pass reads them: outputs of a block of rows, then their part of the gradient.
from fastpoly.kernels.matrix cimport Matrix


cdef class JointRows:
    cdef readonly Matrix X                # in the order of the pass
    cdef readonly object order            # row i of the pass is row order[i] of the data; or None
    cdef readonly bint anova, linear
    cdef readonly Py_ssize_t m
    # All sizes are numbers of doubles, for k basis vectors. x is [H | V | b | W], packed.
    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil          # rows at a time
    cdef double seconds(self, Py_ssize_t k) noexcept nogil            # per row, about
    cdef Py_ssize_t layout_size(self, Py_ssize_t k) noexcept nogil
    cdef Py_ssize_t buffer_size(self, Py_ssize_t k) noexcept nogil    # per worker
    cdef Py_ssize_t sums_size(self, Py_ssize_t k) noexcept nogil      # per share
    # Fills P with what the loops need about features first..last-1, in addition to x.
    cdef void lay_out(
        self, Py_ssize_t k, const double* x, Py_ssize_t first, Py_ssize_t last, double* P
    ) noexcept nogil
    # O (last - first, m) of at most `block` rows; leaves in `buffer` what `add_gradient` needs.
    cdef void outputs(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        double* O, double* buffer
    ) noexcept nogil
    # Adds to the sums what these rows contribute, given D (last - first, m).
    cdef void add_gradient(
        self, Py_ssize_t k, bint basis, Py_ssize_t first, Py_ssize_t last, const double* x,
        const double* P, const double* D, double* sums, double* buffer
    ) noexcept nogil
    # Called after the last rows of a share: adds the rest to its sums.
    cdef void complete(
        self, Py_ssize_t k, const double* x, const double* P, double* sums
    ) noexcept nogil
    # Packed gradient g from the sums of the shares, `slot` apart: features first..last-1 of H and W
    # and, with first = 0, the rest.
    cdef void finish(
        self, Py_ssize_t k, bint basis, const double* x, const double* P, const double* sums,
        Py_ssize_t slot, int n_shares, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil
    # The same for curvatures, with C (n, m) of all rows in the order of the pass. The sums are
    # those of the basis, of the outputs (k, k), and of the linear part (d, m).
    cdef Py_ssize_t curvature_buffer_size(self, Py_ssize_t k) noexcept nogil
    cdef Py_ssize_t curvature_sums_size(self, Py_ssize_t k) noexcept nogil
    cdef void add_curvature(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil
    cdef void finish_curvature(
        self, Py_ssize_t k, const double* x, const double* P, const double* sums, Py_ssize_t slot,
        int n_shares, double* basis, double* output, double* linear
    ) noexcept nogil


cdef class DenseJointRows(JointRows):
    cdef const double* again(
        self, Py_ssize_t first, Py_ssize_t last, double* copy
    ) noexcept nogil


cdef class CsrJointRows(JointRows):
    cdef double entries                   # per row, on average


cdef class PairJointRows(CsrJointRows):
    pass


cdef JointRows make_joint_rows(Matrix X, bint anova, bint linear, Py_ssize_t m)
