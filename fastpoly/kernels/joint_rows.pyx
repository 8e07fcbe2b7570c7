"""Blocks of rows in the joint pass of `joint.pyx`, for each way in which X is stored.

A block goes forward, to its outputs O, and backward, from the loss gradients D to sums of gradients,
while it is in cache. With Z = X @ H.T and S = s(Z):

    O = S @ V + b + X @ W                    forward
    GV += S.T @ D,  gb += D.sum(0),  GW += X.T @ D,  M = D @ V.T
    GH += 2 (M * Z).T @ X                    squared
    GH += (M * Z).T @ X - (M.T @ X**2) * H   anova

Dense rows go through BLAS. CSR rows gather rows of H transposed, which is made once a pass.
These classes hold no state but X; `joint.pyx` gives them memory, threads and the loss.
"""

from fastpoly.kernels.blas cimport SERIAL_PRODUCT, product, product_nt, product_tn
from fastpoly.kernels.features_loops cimport choose_features_loops, features_loops
from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.joint_loops cimport (
    choose_joint_loops, joint_loops, pair_model, pair_sums,
)
from fastpoly.kernels.matrix cimport CsrMatrix, DenseMatrix, Matrix
from fastpoly.kernels.rows cimport csr_rows, rows_of

cdef const joint_loops* loops = choose_joint_loops()
cdef const features_loops* csr_loops = choose_features_loops()
cdef const gamma_loops* diagonal_loops = choose_gamma_loops()

cdef enum:
    CACHE_DOUBLES = 49152            # 384 KB: what a block of rows may fill of the second-level cache
    MOST_ROWS = 256

# What a pass takes on a processor of today, to decide on threads: flops at 25 GFLOP/s, and the loss.
cdef double SECONDS_A_FLOP = 4e-11
cdef double SECONDS_A_LOSS = 3e-9


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + 3) // 4 * 4


cdef inline void add_threads(
    const double* sums, Py_ssize_t slot, int n_threads, Py_ssize_t size, double* out
) noexcept nogil:
    """out = the sums of all threads, added in order."""
    cdef Py_ssize_t i
    cdef int t
    for i in range(size):
        out[i] = sums[i]
    for t in range(1, n_threads):
        for i in range(size):
            out[i] += sums[t * slot + i]


cdef inline void add_padded(
    const double* sums, Py_ssize_t slot, int n_threads, Py_ssize_t first, Py_ssize_t last,
    Py_ssize_t m, double* out
) noexcept nogil:
    """Rows first..last-1 of out (d, m) = the sums (d, m padded) of all threads."""
    cdef Py_ssize_t j, c, width = padded(m)
    cdef int t
    cdef double total
    for j in range(first, last):
        for c in range(m):
            total = sums[j * width + c]
            for t in range(1, n_threads):
                total += sums[t * slot + j * width + c]
            out[j * m + c] = total


cdef class JointRows:
    """Base class; `make_joint_rows` gives the one for a Matrix."""

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        return 8

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t layout_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t sums_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef void lay_out(
        self, Py_ssize_t k, const double* x, Py_ssize_t first, Py_ssize_t last, double* P
    ) noexcept nogil:
        pass

    cdef void outputs(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        double* O, double* buffer
    ) noexcept nogil:
        pass

    cdef void add_gradient(
        self, Py_ssize_t k, bint basis, Py_ssize_t first, Py_ssize_t last, const double* x,
        const double* P, const double* D, double* sums, double* buffer
    ) noexcept nogil:
        pass

    cdef void complete(
        self, Py_ssize_t k, const double* x, const double* P, double* sums
    ) noexcept nogil:
        pass

    cdef void finish(
        self, Py_ssize_t k, bint basis, const double* x, const double* P, const double* sums,
        Py_ssize_t slot, int n_threads, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        pass

    cdef Py_ssize_t curvature_buffer_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef Py_ssize_t curvature_sums_size(self, Py_ssize_t k) noexcept nogil:
        return 0

    cdef void add_curvature(
        self, Py_ssize_t k, Py_ssize_t first, Py_ssize_t last, const double* x, const double* P,
        const double* squares, const double* C, double* sums, double* buffer
    ) noexcept nogil:
        pass

    cdef void finish_curvature(
        self, Py_ssize_t k, const double* x, const double* P, const double* sums, Py_ssize_t slot,
        int n_threads, double* basis, double* output, double* linear
    ) noexcept nogil:
        pass


cdef void weigh(
    const double* C, const double* S, Py_ssize_t n, Py_ssize_t m, Py_ssize_t k, double* out
) noexcept nogil:
    """out (n, k): the rows of S, each times the mean of its row of C (n, m)."""
    cdef Py_ssize_t i, r, c
    cdef double weight
    for i in range(n):
        weight = 0
        for c in range(m):
            weight += C[i * m + c]
        weight /= m
        for r in range(k):
            out[i * k + r] = weight * S[i * k + r]


cdef class DenseJointRows(JointRows):
    """Dense rows. The buffer holds Z, S, M (block, k), then x (block, d) where it is a copy and,
    for anova, its squares; P is H * H for anova; the sums are packed as g is, then M.T @ X**2."""

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
        return SECONDS_A_FLOP * flops + SECONDS_A_LOSS * m

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
        """The rows that `outputs` has read, from where it left them."""
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
        Py_ssize_t slot, int n_threads, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        cdef Py_ssize_t i, size = self.sums_size(0) + k * (self.X.d + self.m)
        cdef int t
        if first:
            return
        add_threads(sums, slot, n_threads, size, g)
        if self.anova and basis:
            for t in range(n_threads):
                for i in range(k * self.X.d):
                    g[i] -= sums[t * slot + size + i] * x[i]

    # Curvature. With u = C (V*V)', the sums are those of
    #   squared  4 (u * Z**2).T @ X**2
    #   anova    (u * Z**2).T @ X**2,  (u * Z).T @ X**3,  u.T @ X**4:  x^2 (z - x h)^2 multiplied out
    # The buffer is that of `outputs` and a power of x behind it.

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
        int n_threads, double* basis, double* output, double* linear
    ) noexcept nogil:
        cdef Py_ssize_t i, size = k * self.X.d
        cdef const double* rest = sums + (3 if self.anova else 1) * size
        cdef double cube, fourth
        cdef int t
        add_threads(sums, slot, n_threads, size, basis)
        add_threads(rest, slot, n_threads, k * k, output)
        if linear != NULL:
            add_threads(rest + k * k, slot, n_threads, self.X.d * self.m, linear)
        if self.anova:
            for i in range(size):
                cube, fourth = 0, 0
                for t in range(n_threads):
                    cube += sums[t * slot + size + i]
                    fourth += sums[t * slot + 2 * size + i]
                basis[i] = max(0.0, basis[i] + x[i] * (x[i] * fourth - 2 * cube))


cdef class CsrJointRows(JointRows):
    """CSR rows. The buffer holds S and M (block, k); P holds H transposed (d, k padded) and W
    (d, m padded); the sums are those of the same two, then GV (k, m) and gb (m)."""

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        return max(16, min(MOST_ROWS, 8192 // max(1, k)))

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        cdef double m = self.m, flops = self.entries * (8 * k + 4 * m) + 6 * k * m
        return 2 * SECONDS_A_FLOP * flops + SECONDS_A_LOSS * m

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
        Py_ssize_t slot, int n_threads, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m
        if basis:
            loops.transpose_sums(1 if self.anova else 2, sums, slot, n_threads, k, d, first, last,
                                 padded(k), g)
        g += k * d
        if first == 0:
            add_threads(sums + self.layout_size(k), slot, n_threads,
                        k * m + (m if self.linear else 0), g)
        if self.linear:
            add_padded(sums + d * padded(k), slot, n_threads, first, last, m, g + k * m + m)

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
        int n_threads, double* basis, double* output, double* linear
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d
        loops.transpose_sums(1 if self.anova else 4, sums, slot, n_threads, k, d, 0, d, padded(k),
                             basis)
        add_threads(sums + self.layout_size(k), slot, n_threads, k * k, output)
        if linear != NULL:
            add_padded(sums + d * padded(k), slot, n_threads, 0, d, self.m, linear)


cdef pair_model model_of(
    JointRows rows, Py_ssize_t k, const double* x, const double* P
) noexcept nogil:
    """Where the parameters are."""
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
    """Where the sums are."""
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
    """CSR rows with exactly two entries, those of one user behind one another; the formulas are in
    simd/joint_pairs.h. P and the sums have, after those of CSR rows, V transposed (m, k padded) and,
    for the squared activation, a table (d, m padded); the sums end with gb (m)."""

    cdef Py_ssize_t block(self, Py_ssize_t k) noexcept nogil:
        return MOST_ROWS

    cdef double seconds(self, Py_ssize_t k) noexcept nogil:
        cdef double m = self.m, flops = 6 * k * m + 8 * k + 8 * m
        return SECONDS_A_FLOP * flops + SECONDS_A_LOSS * m

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
        Py_ssize_t slot, int n_threads, Py_ssize_t first, Py_ssize_t last, double* g
    ) noexcept nogil:
        cdef Py_ssize_t d = self.X.d, m = self.m
        cdef pair_sums G = sums_of(self, k, <double*> sums)
        if basis:
            loops.transpose_sums(1, sums, slot, n_threads, k, d, first, last, padded(k), g)
        g += k * d
        if first == 0:
            loops.transpose_sums(1, G.GVt, slot, n_threads, k, m, 0, m, padded(k), g)
            if self.linear:
                add_threads(G.gb, slot, n_threads, m, g + k * m)
        if self.linear:
            add_padded(G.GW, slot, n_threads, first, last, m, g + k * m + m)


cdef JointRows make_joint_rows(Matrix X, bint anova, bint linear, Py_ssize_t m):
    """The rows of X in the form that fits how it is stored."""
    cdef JointRows rows
    order = None
    if X.sparse:
        if (<CsrMatrix> X).pairs:
            X, order = (<CsrMatrix> X).grouped()
            rows = PairJointRows.__new__(PairJointRows)
        else:
            rows = CsrJointRows.__new__(CsrJointRows)
        (<CsrJointRows> rows).entries = (
            len((<CsrMatrix> X).arrays[0]) / max(1, X.n) + X.augment
        )
    else:
        rows = DenseJointRows.__new__(DenseJointRows)
    rows.X, rows.order, rows.anova, rows.linear, rows.m = X, order, anova, linear, m
    return rows
