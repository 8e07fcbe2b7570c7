# Dense rows of the joint pass, through BLAS.


cdef class DenseJointRows(JointRows):
    """Dense rows. The buffer holds Z, S, M (block, k), then x (block, d) if it is a copy and, for
    anova, its squares. P is H * H for anova. The sums are packed like g, then comes M.T @ X**2."""

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m
        cdef Py_ssize_t serial = SERIAL_PRODUCT // max(1, k * max(d, m), d * m)
        return max(
            16, min(MOST_ROWS, CACHE_DOUBLES // (3 * k + 2 * d + 2 * m), max(32, serial))
        )

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        cdef double d = self.X.d, m = self.m
        cdef double flops = (8 if self.anova else 4) * k * d + 6 * k * m
        if self.linear:
            flops += 4 * d * m
        return flop_seconds(flops) + loss_seconds(m)

    cdef Py_ssize_t layout_size(self, Py_ssize_t k) noexcept nogil:
        return k * self.X.d if self.anova else 0

    cdef Py_ssize_t buffer_size(self, Py_ssize_t k) noexcept nogil:
        return self.block(k) * (3 * k + 2 * self.X.d)

    cdef Py_ssize_t sums_size(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m
        return (2 if self.anova else 1) * k * d + k * m + (m + d * m if self.linear else 0)

    cdef void lay_out(
        self, Py_ssize_t k, const double* x, Py_ssize_t first, Py_ssize_t last, double* P
    ) noexcept nogil:
        cdef Py_ssize_t r, j, d = self.X.d
        if self.anova:
            for r in range(k):
                for j in range(first, last):
                    P[r * d + j] = x[r * d + j] * x[r * d + j]

    cdef const double* again(
        self, Py_ssize_t first, Py_ssize_t last, double* copy
    ) noexcept nogil:
        """The rows that `outputs` has read, from the place where it stored them."""
        if (<DenseMatrix> self.X).copied:
            return copy
        return self.X.dense_rows(first, last, copy)

    cdef void outputs(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        double* O, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m, n = last - first, size = self.block(k)
        cdef const double* V = x + k * d
        cdef double* S = buffer + size * k
        cdef double* Q = S + size * k
        cdef double* copy = Q + size * k
        cdef double* squares = copy + size * d
        cdef const double* rows = self.X.dense_rows(first, last, copy)
        if self.linear:
            loops.fill_rows(V + k * m, n, m, O)
            product(n, m, d, rows, d, V + k * m + m, m, 1, O, m)
        if k:
            product_nt(n, k, d, rows, d, x, d, 0, buffer, k)
            if self.anova:
                loops.activate(rows, NULL, n * d, squares)
                product_nt(n, k, d, squares, d, P, d, 0, Q, k)
                loops.activate(buffer, Q, n * k, S)
            else:
                loops.activate(buffer, NULL, n * k, S)
            product(n, m, k, S, k, V, m, 1 if self.linear else 0, O, m)
        elif not self.linear:
            loops.fill_rows(NULL, n, m, O)

    cdef void add_gradient(
        self, Py_ssize_t k, bint basis, Py_ssize_t first, Py_ssize_t last, const double* x,
        const double* P, const double* D, double* sums, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m, n = last - first, size = self.block(k)
        cdef double* S = buffer + size * k
        cdef double* M = S + size * k
        cdef double* copy = M + size * k
        cdef double* GV = sums + k * d
        cdef double* gb = GV + k * m
        cdef double* of_squares = gb + (m + d * m if self.linear else 0)
        cdef const double* rows = self.again(first, last, copy)
        product_tn(k, m, n, S, k, D, m, 1, GV, m)
        if self.linear:
            loops.add_rows(D, n, m, gb)
            product_tn(d, m, n, rows, d, D, m, 1, gb + m, m)
        if k and basis:
            product_nt(n, k, m, D, m, x + k * d, m, 0, M, k)
            loops.multiply(1 if self.anova else 2, M, n * k, buffer)
            product_tn(k, d, n, buffer, k, rows, d, 1, sums, d)
            if self.anova:
                product_tn(k, d, n, M, k, copy + size * d, d, 1, of_squares, d)

    cdef void finish(
        self, Py_ssize_t k, bint basis, const double* x, const double* P, const double* sums,
        Py_ssize_t slot, int n_shares, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        cdef Py_ssize_t i, size = self.sums_size(0) + k * (self.X.d + self.m)
        cdef int t
        if first:
            return
        add_shares(sums, slot, n_shares, size, g)
        if self.anova and basis:
            for t in range(n_shares):
                for i in range(k * self.X.d):
                    g[i] -= sums[t * slot + size + i] * x[i]

    # Curvature. With u = C (V*V)', the sums are those of
    #   squared  4 (u * Z**2).T @ X**2
    #   anova    (u * Z**2).T @ X**2,  (u * Z).T @ X**3,  u.T @ X**4:  x^2 (z - x h)^2 multiplied out
    # The buffer is that of `outputs`, followed by a power of x.

    cdef Py_ssize_t curvature_buffer_size(self, Py_ssize_t k) noexcept nogil:
        return self.block(k) * (3 * k + 3 * self.X.d)

    cdef Py_ssize_t curvature_sums_size(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t d = self.X.d
        return (3 if self.anova else 1) * k * d + k * k + (d * self.m if self.linear else 0)

    cdef void add_curvature(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t i, d = self.X.d, m = self.m, n = last - first, size = self.block(k)
        cdef double* S = buffer + size * k
        cdef double* U = S + size * k
        cdef double* copy = U + size * k
        cdef double* x_squares = copy + size * d
        cdef double* power = x_squares + size * d
        cdef double* output = sums + (3 if self.anova else 1) * k * d
        cdef const double* rows = self.X.dense_rows(first, last, copy)
        cdef const double* weights = C + first * m
        loops.activate(rows, NULL, n * d, x_squares)
        if self.linear:
            product_tn(d, m, n, x_squares, d, weights, m, 1, output + k * k, m)
        if k == 0:
            return
        product_nt(n, k, d, rows, d, x, d, 0, buffer, k)
        if self.anova:
            product_nt(n, k, d, x_squares, d, P, d, 0, U, k)
            loops.activate(buffer, U, n * k, S)
        else:
            loops.activate(buffer, NULL, n * k, S)
        weigh(weights, S, n, m, k, U)
        product_tn(k, k, n, U, k, S, k, 1, output, k)
        product_nt(n, k, m, weights, m, squares, m, 0, U, k)
        if self.anova:
            for i in range(n * d):
                power[i] = x_squares[i] * x_squares[i]
            product_tn(k, d, n, U, k, power, d, 1, sums + 2 * k * d, d)
            for i in range(n * d):
                power[i] = x_squares[i] * rows[i]
            loops.multiply(1, buffer, n * k, U)
            product_tn(k, d, n, U, k, power, d, 1, sums + k * d, d)
            loops.multiply(1, buffer, n * k, U)
        else:
            loops.multiply(4, S, n * k, U)
        product_tn(k, d, n, U, k, x_squares, d, 1, sums, d)

    cdef void finish_curvature(
        self, Py_ssize_t k, const double* x, const double* P, const double* sums, Py_ssize_t slot,
        int n_shares, double* basis, double* output, double* linear
    ) noexcept nogil:
        cdef Py_ssize_t i, size = k * self.X.d
        cdef const double* rest = sums + (3 if self.anova else 1) * size
        cdef double cube, fourth
        cdef int t
        add_shares(sums, slot, n_shares, size, basis)
        add_shares(rest, slot, n_shares, k * k, output)
        if linear != NULL:
            add_shares(rest + k * k, slot, n_shares, self.X.d * self.m, linear)
        if self.anova:
            for i in range(size):
                cube, fourth = 0, 0
                for t in range(n_shares):
                    cube += sums[t * slot + size + i]
                    fourth += sums[t * slot + 2 * size + i]
                basis[i] = max(0.0, basis[i] + x[i] * (x[i] * fourth - 2 * cube))
