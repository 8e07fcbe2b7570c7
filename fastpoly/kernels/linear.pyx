"""The linear part of a model: outputs X W and their gradient X'D."""

import numpy as np

from fastpoly.kernels.blas cimport product, product_tn
from fastpoly.kernels.features_loops cimport choose_features_loops, features_loops
from fastpoly.kernels.matrix cimport CsrMatrix, DenseMatrix, Matrix
from fastpoly.kernels.memory cimport ROW_BLOCK_DOUBLES
from fastpoly.kernels.rows cimport csr_rows, rows_of

from fastpoly.kernels.checks import as_float_array

cdef const features_loops* loops = choose_features_loops()


cdef void add_product(
    LinearTerms terms, bint gradient, Py_ssize_t first, Py_ssize_t last, const double* given,
    Py_ssize_t m, double* sums, double* buffer
) noexcept nogil:
    """sums += X given, or X' given for the gradient, with the rows first..last-1 of X."""
    cdef csr_rows csr
    cdef const double* x
    cdef Py_ssize_t stop, d = terms.X.d, width = (m + 3) // 4 * 4
    if terms.X.sparse:
        csr = rows_of(<CsrMatrix> terms.X)
        if gradient:
            loops.linear_grad(&csr, first, last, given, m, sums)
        else:
            loops.linear(&csr, first, last, given, m, sums)
        return
    while first < last:
        stop = min(first + terms.block, last)
        x = terms.X.dense_rows(first, stop, buffer)
        if gradient:
            product_tn(d, m, stop - first, x, d, given, m, 1, sums, width)
            given += (stop - first) * m
        else:
            product(stop - first, m, d, x, d, given, width, 1, sums, m)
            sums += (stop - first) * m
        first = stop


cdef class LinearTerms:
    """The linear part of a model of X (n, d): W'x_i for all rows, and its gradient."""

    def __cinit__(self, Matrix X not None):
        self.X = X
        self.block = max(8, min(256, 2 * ROW_BLOCK_DOUBLES // max(1, X.d)))

    cdef Py_ssize_t buffer_size(self) noexcept nogil:
        return 0 if self.X.sparse else self.block * self.X.d

    cdef void add_outputs(
        self, Py_ssize_t first, Py_ssize_t last, const double* W, Py_ssize_t m, double* O,
        double* buffer
    ) noexcept nogil:
        """O (last - first, m) += X W for rows first..last-1; W (d, m padded)."""
        add_product(self, False, first, last, W, m, O, buffer)

    cdef void add_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, Py_ssize_t m, double* G,
        double* buffer
    ) noexcept nogil:
        """G (d, m padded) += X' D over rows first..last-1; D (last - first, m)."""
        add_product(self, True, first, last, D, m, G, buffer)

    def squared_column_norms(self, w):
        """sum_i w_i x_ij^2, (d,)."""
        w = as_float_array(w, "w", (self.X.n,))
        if self.X.sparse:
            data, indices, _ = (<CsrMatrix> self.X).arrays
            rows = np.repeat(w, np.diff((<CsrMatrix> self.X).arrays[2]))
            return np.bincount(indices, rows * data.astype(np.float64)**2, self.X.d)
        X = (<DenseMatrix> self.X).array
        if (<DenseMatrix> self.X).factor is not None:
            X = self.X.rows(slice(None))
        return np.einsum("i,ij,ij->j", w, X, X, dtype=np.float64)

    def outputs(self, W):
        """X @ W, (n, m)."""
        W = as_float_array(W, "W", (self.X.d, None))
        cdef Py_ssize_t m = W.shape[1]
        cdef double[:, ::1] O = np.zeros((self.X.n, m))
        cdef double[:, ::1] padded = np.zeros((self.X.d, (m + 3) // 4 * 4))
        padded.base[:, :m] = W
        cdef double[::1] buffer = np.empty(self.buffer_size() + 1)
        if O.size and self.X.d:
            with nogil:
                self.add_outputs(0, self.X.n, &padded[0, 0], m, &O[0, 0], &buffer[0])
        return O.base

    def grad(self, D):
        """X.T @ D, (d, m)."""
        cdef const double[:, ::1] gradients = as_float_array(D, "D", (self.X.n, None))
        cdef Py_ssize_t m = gradients.shape[1]
        cdef double[:, ::1] G = np.zeros((self.X.d, (m + 3) // 4 * 4))
        cdef double[::1] buffer = np.empty(self.buffer_size() + 1)
        if gradients.size and self.X.d:
            with nogil:
                self.add_grad(0, self.X.n, &gradients[0, 0], m, &G[0, 0], &buffer[0])
        return np.ascontiguousarray(G.base[:, :m])
