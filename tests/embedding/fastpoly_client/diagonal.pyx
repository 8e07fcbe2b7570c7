"""Operators that are given and not summed from data: m diagonal matrices."""

from fastpoly.kernels.gamma cimport Gamma


cdef class DiagonalGamma(Gamma):
    """Gamma_c = diag(diagonals[:, c]), diagonals (d, m)."""

    cdef const double[:, :] diagonals

    def __init__(self, const double[:, :] diagonals):
        self._set_shape(diagonals.shape[0], diagonals.shape[1])
        self.diagonals = diagonals

    cdef void apply(self, const double* B, double* out, double* work) noexcept nogil:
        cdef Py_ssize_t i, c, width = self.width
        for i in range(self.d):
            for c in range(width):
                out[i * width + c] = self.diagonals[i, c] * B[i * width + c] if c < self.m else 0
