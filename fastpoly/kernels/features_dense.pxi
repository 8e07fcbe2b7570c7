# Dense rows of the activations, through BLAS.


cdef class DenseFeatures(Features):
    """Activations of dense rows: products of a block of X with H, through BLAS."""

    cdef double prepare(self) except -1:
        cdef Py_ssize_t d = max(1, self.X.d)
        self.H_rows = self.H
        self.H_squares = self.H * self.H
        self.block = serial_rows(max(8, min(self.block, 2 * ROW_BLOCK_DOUBLES // d)), self.k * d)
        return d

    # Scratch: activations or M * Z (block, k), then rows of X and their squares (block, d) and
    # the products with the squares (block, k).
    cdef Py_ssize_t scratch_size(self) noexcept nogil:
        return self.block * (2 * self.k + 2 * self.X.d)

    cdef void fill(
        self, Py_ssize_t first, Py_ssize_t last, double* S, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t i, d = self.X.d, k = self.k, n = last - first
        cdef double* squares = buffer + self.block * (k + d)
        cdef double* of_squares = squares + self.block * d
        cdef const double* x
        if k == 0:
            return
        x = self.X.dense_rows(first, last, buffer + self.block * k)
        product_nt(n, k, d, x, d, &self.H_rows[0, 0], d, 0, S, k)
        if self.anova:
            for i in range(n * d):
                squares[i] = x[i] * x[i]
            product_nt(n, k, d, squares, d, &self.H_squares[0, 0], d, 0, of_squares, k)
            for i in range(n * k):
                S[i] = 0.5 * (S[i] * S[i] - of_squares[i])
        else:
            for i in range(n * k):
                S[i] *= S[i]

    cdef Py_ssize_t grad_size(self) noexcept nogil:
        return 2 * self.k * self.X.d

    cdef void add_basis_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* M, double* G, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t i, d = self.X.d, k = self.k, n = last - first
        cdef double* squares = buffer + self.block * (k + d)
        cdef const double* x = self.X.dense_rows(first, last, buffer + self.block * k)
        product_nt(n, k, d, x, d, &self.H_rows[0, 0], d, 0, buffer, k)
        for i in range(n * k):
            buffer[i] *= M[i]
        product_tn(k, d, n, buffer, k, x, d, 1, G, d)
        if self.anova:
            for i in range(n * d):
                squares[i] = x[i] * x[i]
            product_tn(k, d, n, M, k, squares, d, 1, G + k * d, d)

    def _finish_grad(self, G):
        G, of_squares = G.reshape(2, self.k, self.X.d)
        return G - of_squares * self.H if self.anova else 2 * G
