from fastpoly.kernels.joint_rows cimport JointRows
from fastpoly.kernels.loss cimport Loss
from fastpoly.kernels.matrix cimport Matrix


cdef class JointObjective:
    cdef readonly Matrix X
    cdef readonly object loss
    cdef readonly Py_ssize_t n, d, m
    cdef readonly bint linear
    cdef readonly int n_threads           # at most; short passes use one
    cdef JointRows rows
    cdef Loss compiled                    # None: a loss written in Python
    cdef const double[:, ::1] Y
    cdef const double[::1] w              # None: all ones
    cdef const unsigned char[::1] levels  # None, or the rows of Y that are the targets of `rows`
    cdef object given_levels              # the same in the order of the data
    cdef const double[:, ::1] Y_rows      # Y and w in the order of `rows`
    cdef const double[::1] w_rows
    cdef list spare                       # memory of earlier passes
    cdef int _check_made(self) except -1
    cdef Py_ssize_t size(self, Py_ssize_t k) noexcept nogil
    cdef Py_ssize_t at_once(self, Py_ssize_t k) noexcept nogil
    cdef int threads(self, Py_ssize_t k) noexcept nogil
    # F and, packed as x is, its gradient g (of H only with `basis`); D (n, m) or NULL, in the order
    # of `rows`. Call with the GIL.
    cdef double run(
        self, const double* x, Py_ssize_t k, bint basis, double* D, double* g
    ) except? -1
    cdef double share(
        self, int t, int n_threads, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k, bint basis,
        const double* x, const double* P, double* D, double* sums, double* buffer
    ) noexcept nogil
    cdef void share_curvature(
        self, int t, int n_threads, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t k,
        const double* x, const double* P, const double* squares, const double* C, double* sums,
        double* buffer
    ) noexcept nogil
