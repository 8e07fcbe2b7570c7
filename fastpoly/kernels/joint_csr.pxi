# CSR rows of the joint pass. They gather rows of H transposed, which is made once per pass.


cdef class CsrJointRows(JointRows):
    """CSR rows. The buffer holds S and M (block, k). P holds H transposed (d, k padded) and W
    (d, m padded). The sums have the gradients of these two, then GV (k, m) and gb (m)."""

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        return max(16, min(MOST_ROWS, 8192 // max(1, k)))

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        cdef double m = self.m, flops = self.entries * (8 * k + 4 * m) + 6 * k * m
        return 2 * flop_seconds(flops) + loss_seconds(m)

    cdef Py_ssize_t layout_size(self, Py_ssize_t k) noexcept nogil:
        return self.X.d * (padded(k) + (padded(self.m) if self.linear else 0))

    cdef Py_ssize_t buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 2 * self.block(k) * k

    cdef Py_ssize_t sums_size(self, Py_ssize_t k) noexcept nogil:
        return self.layout_size(k) + k * self.m + self.m

    cdef void lay_out(
        self, Py_ssize_t k, const double* x, Py_ssize_t first, Py_ssize_t last, double* P
    ) noexcept nogil:
        cdef Py_ssize_t j, c, d = self.X.d, m = self.m, width = padded(m)
        cdef double* W = P + d * padded(k)
        loops.transpose(x, k, d, first, last, padded(k), P)
        if self.linear:
            x += k * d + k * m + m
            for j in range(first, last):
                for c in range(width):
                    W[j * width + c] = x[j * m + c] if c < m else 0

    cdef void outputs(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        double* O, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m, n = last - first
        cdef const double* V = x + k * d
        cdef csr_rows csr = rows_of(<CsrMatrix> self.X)
        loops.fill_rows(V + k * m if self.linear else NULL, n, m, O)
        if self.linear:
            csr_loops.linear(&csr, first, last, P + d * padded(k), m, O)
        if k:
            csr_loops.activations(&csr, self.anova, first, last, P, k, buffer)
            product(n, m, k, buffer, k, V, m, 1, O, m)

    cdef void add_gradient(
        self, Py_ssize_t k, bint basis, Py_ssize_t first, Py_ssize_t last, const double* x,
        const double* P, const double* D, double* sums, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m, n = last - first
        cdef double* M = buffer + self.block(k) * k
        cdef double* GV = sums + self.layout_size(k)
        cdef csr_rows csr = rows_of(<CsrMatrix> self.X)
        product_tn(k, m, n, buffer, k, D, m, 1, GV, m)
        if self.linear:
            loops.add_rows(D, n, m, GV + k * m)
            csr_loops.linear_grad(&csr, first, last, D, m, sums + d * padded(k))
        if k and basis:
            product_nt(n, k, m, D, m, x + k * d, m, 0, M, k)
            csr_loops.basis_grad(&csr, self.anova, first, last, P, k, M, sums)

    cdef void finish(
        self, Py_ssize_t k, bint basis, const double* x, const double* P, const double* sums,
        Py_ssize_t slot, int n_shares, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m
        if basis:
            loops.transpose_sums(1 if self.anova else 2, sums, slot, n_shares, k, d, first, last,
                                 padded(k), g)
        g += k * d
        if first == 0:
            add_shares(sums + self.layout_size(k), slot, n_shares,
                        k * m + (m if self.linear else 0), g)
        if self.linear:
            add_padded(sums + d * padded(k), slot, n_shares, first, last, m, g + k * m + m)

    cdef Py_ssize_t curvature_buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 2 * self.block(k) * k

    cdef Py_ssize_t curvature_sums_size(self, Py_ssize_t k) noexcept nogil:
        return self.layout_size(k) + k * k

    cdef void add_curvature(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m, n = last - first
        cdef double* U = buffer + self.block(k) * k
        cdef csr_rows csr = rows_of(<CsrMatrix> self.X)
        if self.linear:
            diagonal_loops.diagonal(&csr, first, last, C, m, sums + d * padded(k))
        if k == 0:
            return
        C += first * m
        csr_loops.activations(&csr, self.anova, first, last, P, k, buffer)
        weigh(C, buffer, n, m, k, U)
        product_tn(k, k, n, U, k, buffer, k, 1, sums + self.layout_size(k), k)
        product_nt(n, k, m, C, m, squares, m, 0, U, k)
        csr_loops.basis_curvature(&csr, self.anova, first, last, P, k, U, sums)

    cdef void finish_curvature(
        self, Py_ssize_t k, const double* x, const double* P, const double* sums, Py_ssize_t slot,
        int n_shares, double* basis, double* output, double* linear
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d
        loops.transpose_sums(1 if self.anova else 4, sums, slot, n_shares, k, d, 0, d, padded(k),
                             basis)
        add_shares(sums + self.layout_size(k), slot, n_shares, k * k, output)
        if linear != NULL:
            add_padded(sums + d * padded(k), slot, n_shares, 0, d, self.m, linear)
