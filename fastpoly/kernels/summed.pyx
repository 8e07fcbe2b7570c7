"""Gamma_c as sums over rows that are stored elsewhere; every method calls one of a Python object."""

import numpy as np

from libc.math cimport NAN
from libc.string cimport memcpy

from fastpoly.kernels.gamma cimport Gamma

from fastpoly.kernels.checks import as_float_array


cdef class SummedGamma(Gamma):
    """Operators whose methods return sums that are computed elsewhere.

    Parameters
    ----------
    d, m : int
        Size and number of the operators.
    operators : object
        Its methods matvecs(S, B), forms(S, h), combine(S, w, h) and dense(S) return those of the
        operators sum_c S_ce Gamma_c, or of Gamma_c themselves where S (m, e) is None.
    sample : callable, optional
        (number, Generator) -> activations, which takes basis vectors (k, d) to their activations
        (n, k) in at most that many rows, drawn at random. By these, vectors are compared.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.summed import SummedGamma
    >>> class Tripled:
    ...     def matvecs(self, S, B):
    ...         return 3 * B
    >>> SummedGamma(2, 1, Tripled()).matvecs([[1.0], [2.0]])
    array([[3.],
           [6.]])
    """

    cdef object operators, S
    cdef readonly object sample

    def __init__(self, Py_ssize_t d, Py_ssize_t m, operators, sample=None, S=None):
        self._set_shape(d, m)
        self.operators, self.sample, self.S = operators, sample, S

    cdef void apply(self, const double* B, double* out, double* work) noexcept nogil:
        # Python cannot be called from here, and nothing can be raised; see apply_checked.
        cdef Py_ssize_t i
        for i in range(self.d * self.width):
            out[i] = NAN

    cdef int apply_checked(self, const double* B, double* out, double* work) except -1:
        cdef double[:, ::1] block = np.empty((self.d, self.width))
        memcpy(&block[0, 0], B, self.d * self.width * sizeof(double))
        block.base[:, :self.m] = self.matvecs(block.base[:, :self.m])
        memcpy(out, &block[0, 0], self.d * self.width * sizeof(double))
        return 0

    def matvecs(self, B, *, bint finite=True):
        """Gamma_c B_:c for every output, (d, m)."""
        self._check_made()
        B = as_float_array(B, "B", (self.d, self.m), finite=finite)
        return as_float_array(self.operators.matvecs(self.S, B), "the sum", B.shape, finite=False)

    def forms(self, h, *, bint finite=True):
        """The quadratic forms q_c = h' Gamma_c h, (m,)."""
        self._check_made()
        h = as_float_array(h, "h", (self.d,), finite=finite)
        return as_float_array(self.operators.forms(self.S, h), "the sum", (self.m,), finite=False)

    def combine(self, w, h, *, bint finite=True):
        """The weighted combination sum_c w_c Gamma_c h, (d,)."""
        self._check_made()
        w = as_float_array(w, "w", (self.m,), finite=finite)
        h = as_float_array(h, "h", (self.d,), finite=finite)
        total = self.operators.combine(self.S, w, h)
        return as_float_array(total, "the sum", (self.d,), finite=False)

    def dense(self):
        """The operators as an array (m, d, d)."""
        self._check_made()
        total = self.operators.dense(self.S)
        return as_float_array(total, "the sum", (self.m, self.d, self.d), finite=False)

    def combined(self, S):
        """The operators sum_c S_ce Gamma_c for every column e of S (m, e)."""
        self._check_made()
        S = as_float_array(S, "S", (self.m, None))
        both = S if self.S is None else self.S @ S
        return SummedGamma(self.d, S.shape[1], self.operators, self.sample, both)
