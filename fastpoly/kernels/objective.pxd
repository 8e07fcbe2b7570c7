from fastpoly.kernels.features cimport RowBlocks
from fastpoly.kernels.linear cimport LinearTerms
from fastpoly.kernels.loss cimport Loss


cdef class Objective:
    cdef readonly RowBlocks features
    cdef readonly object loss
    cdef readonly LinearTerms linear      # None: no linear part
    cdef readonly Py_ssize_t n, k, m
    cdef Loss compiled                    # None: a loss written in Python
    cdef const double[:, ::1] Y
    cdef const double[::1] w              # None: all ones
    cdef Py_ssize_t block
    cdef int _check_made(self) except -1
    cdef Py_ssize_t buffer_size(self) noexcept nogil
    cdef double add_rows(
        self, Py_ssize_t first, Py_ssize_t last, const double* V, const double* b,
        const double* W, double* G, double* D, double* buffer
    ) noexcept nogil
    cdef Py_ssize_t hessian_rows(self) noexcept nogil
    cdef void add_hessian(
        self, Py_ssize_t first, Py_ssize_t last, const double* C, double* blocks, double* buffer
    ) noexcept nogil
