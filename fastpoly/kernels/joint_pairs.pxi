# CSR rows with exactly two entries, such as one user and one item, in the joint pass.


cdef pair_model model_of(
    JointRows rows, Py_ssize_t k, const double* x, const double* P
) noexcept nogil:
    """The addresses of the parameters."""
    cdef Py_ssize_t d = rows.X.d, m = rows.m
    cdef pair_model model
    model.X = rows_of(<CsrMatrix> rows.X)
    model.anova, model.k, model.m = rows.anova, k, m
    model.Ht = P
    P += d * padded(k)
    model.b, model.W, model.C = NULL, NULL, NULL
    if rows.linear:
        model.b, model.W = x + k * d + k * m, P
        P += d * padded(m)
    model.Vt = P
    if not rows.anova:
        model.C = P + m * padded(k)
    return model


cdef pair_sums sums_of(JointRows rows, Py_ssize_t k, double* sums) noexcept nogil:
    """The addresses of the sums."""
    cdef Py_ssize_t d = rows.X.d, m = rows.m
    cdef pair_sums G
    G.Gt = sums
    G.gb, G.GW, G.E = NULL, NULL, NULL
    if rows.linear:
        G.gb, G.GW = sums + rows.layout_size(k), sums + d * padded(k)
    G.GVt = sums + d * padded(k) + (d * padded(m) if rows.linear else 0)
    if not rows.anova:
        G.E = G.GVt + m * padded(k)
    return G


cdef class PairJointRows(CsrJointRows):
    """CSR rows with exactly two entries, with the rows of a user next to each other. The formulas
    are in simd/joint_pairs.h. After the parts of CSR rows, P and the sums have V transposed
    (m, k padded) and, for the squared activation, a table (d, m padded). The sums end with gb (m).
    """

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        return MOST_ROWS

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        cdef double m = self.m, flops = 6 * k * m + 8 * k + 8 * m
        return 2 * flop_seconds(flops) + loss_seconds(m)

    cdef Py_ssize_t layout_size(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t tables = self.linear + (not self.anova)
        return self.X.d * (padded(k) + tables * padded(self.m)) + self.m * padded(k)

    cdef Py_ssize_t buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 2 * self.m * padded(k) + 2 * padded(self.m) + MOST_ROWS * self.m

    cdef Py_ssize_t sums_size(self, Py_ssize_t k) noexcept nogil:
        return self.layout_size(k) + self.m

    cdef void lay_out(
        self, Py_ssize_t k, const double* x, Py_ssize_t first, Py_ssize_t last, double* P
    ) noexcept nogil:
        cdef pair_model model = model_of(self, k, x, P)
        CsrJointRows.lay_out(self, k, x, first, last, P)
        x += k * self.X.d
        if first == 0:
            loops.transpose(x, k, self.m, 0, self.m, padded(k), <double*> model.Vt)
        if not self.anova:
            loops.pair_squares(&model, x, first, last, <double*> model.C)

    cdef void outputs(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        double* O, double* buffer
    ) noexcept nogil:
        cdef pair_model model = model_of(self, k, x, P)
        loops.pair_outputs(&model, first, last, O, buffer)

    cdef void add_gradient(
        self, Py_ssize_t k, bint basis, Py_ssize_t first, Py_ssize_t last, const double* x,
        const double* P, const double* D, double* sums, double* buffer
    ) noexcept nogil:
        cdef pair_model model = model_of(self, k, x, P)
        cdef pair_sums G = sums_of(self, k, sums)
        loops.pair_gradient(&model, first, last, D, buffer, &G)

    cdef void complete(
        self, Py_ssize_t k, const double* x, const double* P, double* sums
    ) noexcept nogil:
        cdef pair_model model = model_of(self, k, x, P)
        cdef pair_sums G = sums_of(self, k, sums)
        if not self.anova:
            loops.pair_squares_gradient(&model, 0, self.X.d, &G)

    cdef void finish(
        self, Py_ssize_t k, bint basis, const double* x, const double* P, const double* sums,
        Py_ssize_t slot, int n_shares, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m
        cdef pair_sums G = sums_of(self, k, <double*> sums)
        if basis:
            loops.transpose_sums(1, sums, slot, n_shares, k, d, first, last, padded(k), g)
        g += k * d
        if first == 0:
            loops.transpose_sums(1, G.GVt, slot, n_shares, k, m, 0, m, padded(k), g)
            if self.linear:
                add_shares(G.gb, slot, n_shares, m, g + k * m)
        if self.linear:
            add_padded(G.GW, slot, n_shares, first, last, m, g + k * m + m)
