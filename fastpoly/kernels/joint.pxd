from fastpoly.kernels.joint_rows cimport JointRows
from fastpoly.kernels.loss cimport Loss
from fastpoly.kernels.matrix cimport Matrix


cdef class JointPass:
    cdef readonly Matrix X
    cdef readonly Py_ssize_t n, d, m
    cdef readonly int n_threads           # largest number; short passes use fewer
    cdef JointRows rows
    cdef Loss compiled                    # None: a loss written in Python
    cdef const double[:, ::1] Y_rows      # targets and weights in the order of `rows`
    cdef const double[::1] w_rows         # None: all ones
    cdef const unsigned char[::1] levels  # None, or the rows of Y that are the targets of `rows`
    cdef list spare                       # memory of earlier passes
    cdef Py_ssize_t at_once(self, Py_ssize_t k, int threads, int n_shares) noexcept nogil
    cdef int threads(self, Py_ssize_t k) noexcept nogil
    # F and, packed as x is, its gradient g (of H only with `basis`); D (n, m) or NULL, in the order
    # of `rows`. Call with the GIL.
    cdef double run(
        self, const double* x, Py_ssize_t k, bint basis, double* D, double* g
    ) except? -1
    cdef double add_rows(
        self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k, bint basis, const double* x,
        const double* P, double* D, double* sums, double* buffer
    ) noexcept nogil
    cdef void add_curvature(
        self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t k, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil
    # The sums of a `Curvature`, from C (n, m) in the order of `rows`; linear may be None.
    cdef int sum_curvature(
        self, const double[::1] x, Py_ssize_t k, const double[:, ::1] C, double[:, ::1] basis,
        double[:, ::1] output, double[:, ::1] linear
    ) except -1


cdef class JointObjective(JointPass):
    cdef readonly object loss
    cdef readonly bint linear
    cdef const double[:, ::1] Y
    cdef const double[::1] w              # None: all ones
    cdef object given_levels              # `levels` in the order of the data
    cdef int _check_made(self) except -1
    cdef Py_ssize_t size(self, Py_ssize_t k) noexcept nogil
