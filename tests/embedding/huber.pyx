from libc.math cimport fabs
from fastpoly.kernels.losses cimport Loss

cdef class Huber(Loss):
    """l(y, o) = sum_c r_c^2 / 2 where |r_c| <= width, else width |r_c| - width^2 / 2; r = o - y."""

    name = "huber"
    target = "real"
    cdef readonly double width

    def __init__(self, double width=1.0):
        self.width = width

    def __reduce__(self):
        return type(self), (self.width,)

    cdef double row(self, const double* y, const double* o, double* g, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double value = 0, r, clipped
        for c in range(m):
            r = o[c] - y[c]
            clipped = min(max(r, -self.width), self.width)
            value += clipped * (r - 0.5 * clipped)
            if g != NULL:
                g[c] = clipped
        return value

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 1
