"""A penalty with a parameter: `factor` times the Euclidean norm of each row."""

from libc.math cimport sqrt

from fastpoly.kernels.penalties cimport Penalty


cdef double norm2(const double* v, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t c
    cdef double total = 0
    for c in range(m):
        total += v[c] * v[c]
    return sqrt(total)


cdef class ScaledL1L2(Penalty):
    name = "scaled l1/l2"
    cdef readonly double factor

    def __init__(self, double factor):
        self.factor = factor

    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil:
        return self.factor * norm2(v, m)

    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil:
        return norm2(g, m) / self.factor

    cdef void row_polar(self, const double* g, double* v, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double norm = norm2(g, m)
        for c in range(m):
            v[c] = g[c] / (self.factor * norm) if norm > 0 else 0

    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double norm = norm2(v, m), shrunk = max(norm - self.factor * t, 0)
        for c in range(m):
            v[c] = v[c] * (shrunk / norm) if shrunk > 0 else 0
        return self.factor * shrunk

    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil:
        cdef double shrunk = max(norm2(v, m) - self.factor * t, 0)
        slope[0] = -self.factor * self.factor if shrunk > 0 else 0
        return self.factor * shrunk

    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double total = 0
        for c in range(m):
            total += q[c] * q[c]
            w[c] = 2 * q[c]
        return total
