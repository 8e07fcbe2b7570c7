"""The smallest loss: half of the squared one."""

from fastpoly.kernels.losses cimport Loss


cdef class Half(Loss):
    name = "half"
    target = "real"

    cdef double row(self, const double* y, const double* o, double* g, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        cdef double r, value = 0
        for c in range(m):
            r = o[c] - y[c]
            value += r * r / 4
            if g != NULL:
                g[c] = r / 2
        return value
