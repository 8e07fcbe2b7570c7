# W'x_i, one block of rows at a time.
from fastpoly.kernels.matrix cimport Matrix


cdef class LinearTerms:
    cdef readonly Matrix X
    cdef Py_ssize_t block
    cdef Py_ssize_t buffer_size(self) noexcept nogil
    cdef void add_outputs(
        self, Py_ssize_t first, Py_ssize_t last, const double* W, Py_ssize_t m, double* O,
        double* buffer
    ) noexcept nogil
    cdef void add_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, Py_ssize_t m, double* G,
        double* buffer
    ) noexcept nogil
