"""A loss with a parameter."""

from fastpoly.kernels.losses cimport Loss


cdef class Expectile(Loss):
    """l(y, o) = sum_c a_c (o_c - y_c)^2 / 2, a_c = 2 level where o_c < y_c, else 2 (1 - level)."""

    name = "expectile"
    target = "real"
    cdef readonly double level

    def __init__(self, double level=0.5):
        self.level = level

    def __reduce__(self):
        return type(self), (self.level,)

    cdef double row(self, const double* y, const double* o, double* g, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double value = 0, r, a
        for c in range(m):
            r = o[c] - y[c]
            a = 2 * self.level if r < 0 else 2 * (1 - self.level)
            value += a * r * r / 2
            if g != NULL:
                g[c] = a * r
        return value

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 2 * max(self.level, 1 - self.level)
