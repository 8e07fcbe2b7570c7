/* The loops of features.c, included once per storage TYPE of the values of X. */

/* Columns c0.. of one row of activations. The anova kernel is a sum of prefix products,
 * s = sum_j p_j (p_1 + ... + p_{j-1}) with p_j = h_j x_j. It has no cancellation, and is exactly 0
 * for rows with one entry. z returns H x_i. */
FP_INLINE void TYPED(row)(const int NV, const int anova, const struct csr_rows *X, ptrdiff_t i,
                          const double *Ht, ptrdiff_t ld, ptrdiff_t c0, vec *z, vec *s) {
    const TYPE *FP_RESTRICT data = X->data;
    const double *H1 = Ht + c0 + X->augment * ld;
    EACH_VEC {
        z[v] = X->augment ? vec_load(Ht + c0 + v * VEC_WIDTH) : vec_set(0);
        s[v] = vec_set(0);
    }
    for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
        FP_CHECK(X->indices[p] >= 0 && X->indices[p] < X->d);
        const double *h = H1 + X->indices[p] * ld;
        const vec x = vec_set((double)data[p]);
        EACH_VEC {
            const vec t = x * vec_load(h + v * VEC_WIDTH);
            if (anova) s[v] += t * z[v];
            z[v] += t;
        }
    }
    if (!anova) EACH_VEC s[v] = z[v] * z[v];
}

FP_INLINE void TYPED(activation_group)(const int NV, const int anova, const struct csr_rows *X,
                                       ptrdiff_t i, const double *Ht, ptrdiff_t m, ptrdiff_t c0,
                                       int next_row_follows, double *out) {
    vec z[MAX_VECS], s[MAX_VECS];
    TYPED(row)(NV, anova, X, i, Ht, PADDED(m), c0, z, s);
    if (next_row_follows && c0 + NV * VEC_WIDTH <= 2 * m) {
        EACH_VEC vec_store(out + c0 + v * VEC_WIDTH, s[v]);
    } else {
        for (ptrdiff_t c = 0; c < NV * VEC_WIDTH && c0 + c < m; c++)
            out[c0 + c] = s[c / VEC_WIDTH][c % VEC_WIDTH];
    }
}

static void TYPED(activations)(const struct csr_rows *X, int anova, ptrdiff_t first,
                               ptrdiff_t last, const double *FP_RESTRICT Ht, ptrdiff_t m,
                               double *FP_RESTRICT S) {
    for (ptrdiff_t i = first; i < last; i++) {
        double *out = S + (i - first) * m;
        if (anova) {
#define CALL(NV) TYPED(activation_group)(NV, 1, X, i, Ht, m, c0, i + 1 < last, out)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        } else {
#define CALL(NV) TYPED(activation_group)(NV, 0, X, i, Ht, m, c0, i + 1 < last, out)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        }
    }
}

/* g += x (weight z - x weight h), the last term only for anova */
FP_INLINE void TYPED(add_step)(const int NV, const int anova, vec x, const vec *weight,
                               const vec *weighted_z, const double *h, double *g) {
    EACH_VEC {
        vec step = weighted_z[v];
        if (anova) step -= x * weight[v] * vec_load(h + v * VEC_WIDTH);
        vec_store(g + v * VEC_WIDTH, vec_load(g + v * VEC_WIDTH) + x * step);
    }
}

FP_INLINE void TYPED(basis_grad_group)(const int NV, const int anova, const struct csr_rows *X,
                                       ptrdiff_t i, const double *Ht, ptrdiff_t m, ptrdiff_t c0,
                                       const double *weights, double *Gt) {
    const TYPE *FP_RESTRICT data = X->data;
    const ptrdiff_t ld = PADDED(m);
    vec z[MAX_VECS], s[MAX_VECS], weight[MAX_VECS];
    TYPED(row)(NV, 0, X, i, Ht, ld, c0, z, s);
    EACH_VEC weight[v] = vec_load(weights + v * VEC_WIDTH);
    EACH_VEC z[v] *= weight[v];
    if (X->augment) TYPED(add_step)(NV, anova, vec_set(1), weight, z, Ht + c0, Gt + c0);
    for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
        const ptrdiff_t at = (X->indices[p] + X->augment) * ld + c0;
        TYPED(add_step)(NV, anova, vec_set((double)data[p]), weight, z, Ht + at, Gt + at);
    }
}

static void TYPED(basis_grad)(const struct csr_rows *X, int anova, ptrdiff_t first,
                              ptrdiff_t last, const double *FP_RESTRICT Ht, ptrdiff_t m,
                              const double *FP_RESTRICT M, double *FP_RESTRICT Gt) {
    double copy[MAX_VECS * VEC_WIDTH];
    for (ptrdiff_t i = first; i < last; i++) {
#define WEIGHTS(NV) padded_row(M, i - first, last - first, m, c0, NV, copy)
        if (anova) {
#define CALL(NV) TYPED(basis_grad_group)(NV, 1, X, i, Ht, m, c0, WEIGHTS(NV), Gt)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        } else {
#define CALL(NV) TYPED(basis_grad_group)(NV, 0, X, i, Ht, m, c0, WEIGHTS(NV), Gt)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        }
#undef WEIGHTS
    }
}

static void TYPED(linear)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                             const double *FP_RESTRICT W, ptrdiff_t m, double *FP_RESTRICT O) {
    const TYPE *FP_RESTRICT data = X->data;
    const ptrdiff_t ld = PADDED(m);
    for (ptrdiff_t i = first; i < last; i++) {
        double *out = O + (i - first) * m;
        if (X->augment)
            for (ptrdiff_t c = 0; c < m; c++) out[c] += W[c];
        for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
            FP_CHECK(X->indices[p] >= 0 && X->indices[p] < X->d);
            const double *w = W + (X->indices[p] + X->augment) * ld, x = data[p];
            FP_SIMD
            for (ptrdiff_t c = 0; c < m; c++) out[c] += x * w[c];
        }
    }
}

FP_INLINE void TYPED(linear_grad_group)(const int NV, const struct csr_rows *X, ptrdiff_t i,
                                        const double *row, ptrdiff_t m, ptrdiff_t c0,
                                        double *FP_RESTRICT G) {
    const TYPE *FP_RESTRICT data = X->data;
    if (X->augment)
        EACH_VEC vec_store(G + c0 + v * VEC_WIDTH, vec_load(G + c0 + v * VEC_WIDTH) +
                                                       vec_load(row + v * VEC_WIDTH));
    for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
        FP_CHECK(X->indices[p] >= 0 && X->indices[p] < X->d);
        double *g = G + (X->indices[p] + X->augment) * PADDED(m) + c0;
        const vec x = vec_set((double)data[p]);
        EACH_VEC vec_store(g + v * VEC_WIDTH,
                           vec_load(g + v * VEC_WIDTH) + x * vec_load(row + v * VEC_WIDTH));
    }
}

static void TYPED(linear_grad)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                               const double *FP_RESTRICT D, ptrdiff_t m, double *FP_RESTRICT G) {
    double copy[MAX_VECS * VEC_WIDTH];
    for (ptrdiff_t i = first; i < last; i++) {
#define ROW(NV) padded_row(D, i - first, last - first, m, c0, NV, copy)
#define CALL(NV) TYPED(linear_grad_group)(NV, X, i, ROW(NV), m, c0, G)
        FOR_COLUMN_GROUPS(CALL)
#undef CALL
#undef ROW
    }
}

/* g_j += x^2 weight (z - x h_j)^2, the last term only for anova */
FP_INLINE void TYPED(add_square)(const int NV, const int anova, vec x, const vec *weight,
                                 const vec *z, const double *h, double *g) {
    EACH_VEC {
        vec step = z[v];
        if (anova) step -= x * vec_load(h + v * VEC_WIDTH);
        step *= x;
        vec_store(g + v * VEC_WIDTH, vec_load(g + v * VEC_WIDTH) + weight[v] * step * step);
    }
}

FP_INLINE void TYPED(basis_curvature_group)(const int NV, const int anova,
                                            const struct csr_rows *X, ptrdiff_t i,
                                            const double *Ht, ptrdiff_t m, ptrdiff_t c0,
                                            const double *weights, double *Gt) {
    const TYPE *FP_RESTRICT data = X->data;
    const ptrdiff_t ld = PADDED(m);
    vec z[MAX_VECS], s[MAX_VECS], weight[MAX_VECS];
    TYPED(row)(NV, 0, X, i, Ht, ld, c0, z, s);
    EACH_VEC weight[v] = vec_load(weights + v * VEC_WIDTH);
    if (X->augment) TYPED(add_square)(NV, anova, vec_set(1), weight, z, Ht + c0, Gt + c0);
    for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
        const ptrdiff_t at = (X->indices[p] + X->augment) * ld + c0;
        TYPED(add_square)(NV, anova, vec_set((double)data[p]), weight, z, Ht + at, Gt + at);
    }
}

static void TYPED(basis_curvature)(const struct csr_rows *X, int anova, ptrdiff_t first,
                                   ptrdiff_t last, const double *FP_RESTRICT Ht, ptrdiff_t m,
                                   const double *FP_RESTRICT U, double *FP_RESTRICT Gt) {
    double copy[MAX_VECS * VEC_WIDTH];
    for (ptrdiff_t i = first; i < last; i++) {
#define WEIGHTS(NV) padded_row(U, i - first, last - first, m, c0, NV, copy)
        if (anova) {
#define CALL(NV) TYPED(basis_curvature_group)(NV, 1, X, i, Ht, m, c0, WEIGHTS(NV), Gt)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        } else {
#define CALL(NV) TYPED(basis_curvature_group)(NV, 0, X, i, Ht, m, c0, WEIGHTS(NV), Gt)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        }
#undef WEIGHTS
    }
}
