"""The linear part of a model: outputs X W and their gradient X'D."""

import numpy as np

from fastpoly.kernels.blas cimport product, product_tn
from fastpoly.kernels.features_loops cimport choose_features_loops, features_loops
from fastpoly.kernels.matrix cimport CsrMatrix, DenseMatrix, Matrix
from fastpoly.kernels.rows cimport csr_rows, rows_of

from fastpoly.kernels.checks import as_float_array

cdef const features_loops* loops = choose_features_loops()

cdef enum:
    BLOCK_DOUBLES = 16384            # 128 KB: a block of rows stays in the second-level cache


cdef class LinearTerms:
    """The linear part of a model: W' x_i for all rows, and its gradient.

    Parameters
    ----------
    X : Matrix, (n, d)
    """

    def __cinit__(self, Matrix X not None):
        self.X = X
        self.block = max(8, min(256, 2 * BLOCK_DOUBLES // max(1, X.d)))

    cdef Py_ssize_t buffer_size(self) noexcept nogil:
        return 0 if self.X.sparse else self.block * self.X.d

    cdef void add_outputs(
        self, Py_ssize_t first, Py_ssize_t last, const double* W, Py_ssize_t m, double* O,
        double* buffer
    ) noexcept nogil:
        """O (last - first, m) += X W for rows first..last-1; W (d, m padded)."""
        cdef csr_rows csr
        cdef Py_ssize_t stop, d = self.X.d, width = (m + 3) // 4 * 4
        if self.X.sparse:
            csr = rows_of(<CsrMatrix> self.X)
            loops.linear(&csr, first, last, W, m, O)
            return
        while first < last:
            stop = min(first + self.block, last)
            product(stop - first, m, d, self.X.dense_rows(first, stop, buffer), d, W, width, 1,
                    O, m)
            O += (stop - first) * m
            first = stop

    cdef void add_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, Py_ssize_t m, double* G,
        double* buffer
    ) noexcept nogil:
        """G (d, m padded) += X' D over rows first..last-1; D (last - first, m)."""
        cdef csr_rows csr
        cdef Py_ssize_t stop, d = self.X.d, width = (m + 3) // 4 * 4
        if self.X.sparse:
            csr = rows_of(<CsrMatrix> self.X)
            loops.linear_grad(&csr, first, last, D, m, G)
            return
        while first < last:
            stop = min(first + self.block, last)
            product_tn(d, m, stop - first, self.X.dense_rows(first, stop, buffer), d, D, m, 1,
                       G, width)
            D += (stop - first) * m
            first = stop

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
        """X @ W.

        Parameters
        ----------
        W : array-like, (d, m)

        Returns
        -------
        ndarray, (n, m)
        """
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
        """X.T @ D.

        Parameters
        ----------
        D : array-like, (n, m)

        Returns
        -------
        ndarray, (d, m)
        """
        cdef const double[:, ::1] gradients = as_float_array(D, "D", (self.X.n, None))
        cdef Py_ssize_t m = gradients.shape[1]
        cdef double[:, ::1] G = np.zeros((self.X.d, (m + 3) // 4 * 4))
        cdef double[::1] buffer = np.empty(self.buffer_size() + 1)
        if gradients.size and self.X.d:
            with nogil:
                self.add_grad(0, self.X.n, &gradients[0, 0], m, &G[0, 0], &buffer[0])
        return np.ascontiguousarray(G.base[:, :m])
