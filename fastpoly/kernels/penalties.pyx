from fastpoly.kernels.runtime cimport effective_n_threads
cdef class Penalty:
    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil:
        return 0
    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil:
        return 0
    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil:
        return 0
    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil:
        return 0
    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil:
        return 0
