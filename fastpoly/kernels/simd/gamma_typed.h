/* The loops of gamma.c that read stored values; included once per storage TYPE. */

FP_INLINE void TYPED(matvecs)(const int NV, const struct csr_rows *X, ptrdiff_t first,
                              ptrdiff_t last, const double *FP_RESTRICT D, ptrdiff_t m,
                              ptrdiff_t c0, const double *FP_RESTRICT B,
                              double *FP_RESTRICT out) {
    const TYPE *FP_RESTRICT data = X->data;
    const int32_t *FP_RESTRICT indices = X->indices;
    const int64_t *FP_RESTRICT indptr = X->indptr;
    const ptrdiff_t ld = PADDED(m);
    const int augment = X->augment;
    double copy[MAX_VECS * VEC_WIDTH];
    vec constant[MAX_VECS], sum[MAX_VECS];
    EACH_VEC {
        constant[v] = augment ? vec_load(B + c0 + v * VEC_WIDTH) : vec_set(0);
        sum[v] = vec_set(0);
    }
    const double *B1 = B + c0 + augment * ld;
    double *out1 = out + c0 + augment * ld;
    for (ptrdiff_t i = first; i < last; i++) {
        const int64_t begin = indptr[i], end = indptr[i + 1];
        const double *gradient = padded_row(D, i, X->n, m, c0, NV, copy);
        vec z[MAX_VECS];
        EACH_VEC z[v] = constant[v];
        for (int64_t p = begin; p < end; p++) {
            FP_CHECK(indices[p] >= 0 && indices[p] < X->d);
            const double *b = B1 + indices[p] * ld;
            const vec x = vec_set((double)data[p]);
            EACH_VEC z[v] += x * vec_load(b + v * VEC_WIDTH);
        }
        EACH_VEC z[v] *= vec_load(gradient + v * VEC_WIDTH);
        EACH_VEC sum[v] += z[v];
        for (int64_t p = begin; p < end; p++) {
            double *o = out1 + indices[p] * ld;
            const vec x = vec_set((double)data[p]);
            EACH_VEC vec_store(o + v * VEC_WIDTH, vec_load(o + v * VEC_WIDTH) + x * z[v]);
        }
    }
    if (augment)
        EACH_VEC {
            double *o = out + c0 + v * VEC_WIDTH;
            vec_store(o, vec_load(o) + sum[v]);
        }
}

/* Row i = (a at u, b at j). While u stays the same from row to row (ratings sorted by user) its
 * row of B and of out stays in registers.
 * squared: z = D (B_0 + a B_u + b B_j);  out_0 += z, out_u += a z, out_j += b z
 * anova (off-diagonal part of X'DX):
 *   out_0 += D (a B_u + b B_j), out_u += a D (B_0 + b B_j), out_j += b D (B_0 + a B_u) */
FP_INLINE void TYPED(pairs)(const int NV, const int anova, const int augment, const int ones,
                            const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                            const double *FP_RESTRICT D, ptrdiff_t m, ptrdiff_t c0,
                            const double *FP_RESTRICT B, double *FP_RESTRICT out) {
    const TYPE *FP_RESTRICT data = X->data;
    const int32_t *FP_RESTRICT indices = X->indices;
    const ptrdiff_t ld = PADDED(m);
    double copy[MAX_VECS * VEC_WIDTH];
    vec b_0[MAX_VECS], out_0[MAX_VECS], b_u[MAX_VECS], out_u[MAX_VECS];
    const double *B1 = B + c0 + augment * ld;
    double *out1 = out + c0 + augment * ld;
    EACH_VEC {
        b_0[v] = augment ? vec_load(B + c0 + v * VEC_WIDTH) : vec_set(0);
        out_0[v] = out_u[v] = b_u[v] = vec_set(0);
    }
    int32_t u = -1;
    for (ptrdiff_t i = first; i < last; i++) {
        FP_CHECK(indices[2 * i] >= 0 && indices[2 * i] < X->d);
        FP_CHECK(indices[2 * i + 1] >= 0 && indices[2 * i + 1] < X->d);
        if (indices[2 * i] != u) {
            if (u >= 0) {
                double *o = out1 + u * ld;
                EACH_VEC vec_store(o + v * VEC_WIDTH, vec_load(o + v * VEC_WIDTH) + out_u[v]);
            }
            u = indices[2 * i];
            EACH_VEC {
                b_u[v] = vec_load(B1 + u * ld + v * VEC_WIDTH);
                out_u[v] = vec_set(0);
            }
        }
        const ptrdiff_t j = indices[2 * i + 1];
        const vec a = vec_set(ones ? 1.0 : (double)data[2 * i]);
        const vec b = vec_set(ones ? 1.0 : (double)data[2 * i + 1]);
        const double *gradient = padded_row(D, i, X->n, m, c0, NV, copy);
        double *o = out1 + j * ld;
        EACH_VEC {
            const vec g = vec_load(gradient + v * VEC_WIDTH);
            const vec b_j = vec_load(B1 + j * ld + v * VEC_WIDTH);
            const vec at_u = a * b_u[v], at_j = b * b_j;
            vec to_u, to_j;
            if (anova) {
                to_u = g * (augment ? b_0[v] + at_j : at_j);
                to_j = g * (augment ? b_0[v] + at_u : at_u);
                if (augment) out_0[v] += g * (at_u + at_j);
            } else {
                to_u = to_j = g * (augment ? b_0[v] + at_u + at_j : at_u + at_j);
                if (augment) out_0[v] += to_u;
            }
            out_u[v] += a * to_u;
            vec_store(o + v * VEC_WIDTH, vec_load(o + v * VEC_WIDTH) + b * to_j);
        }
    }
    EACH_VEC {
        double *o = out1 + u * ld + v * VEC_WIDTH, *o_0 = out + c0 + v * VEC_WIDTH;
        if (u >= 0) vec_store(o, vec_load(o) + out_u[v]);
        if (augment) vec_store(o_0, vec_load(o_0) + out_0[v]);
    }
}

FP_INLINE void TYPED(diagonal)(const int NV, const struct csr_rows *X, ptrdiff_t first,
                               ptrdiff_t last, const double *FP_RESTRICT D, ptrdiff_t m,
                               ptrdiff_t c0, double *FP_RESTRICT diag) {
    const TYPE *FP_RESTRICT data = X->data;
    const ptrdiff_t ld = PADDED(m);
    double copy[MAX_VECS * VEC_WIDTH];
    double *diag1 = diag + c0 + X->augment * ld;
    for (ptrdiff_t i = first; i < last; i++) {
        const double *gradient = padded_row(D, i, X->n, m, c0, NV, copy);
        vec g[MAX_VECS];
        EACH_VEC g[v] = vec_load(gradient + v * VEC_WIDTH);
        for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
            FP_CHECK(X->indices[p] >= 0 && X->indices[p] < X->d);
            double *o = diag1 + X->indices[p] * ld;
            const vec x = vec_set((double)data[p] * (double)data[p]);
            EACH_VEC vec_store(o + v * VEC_WIDTH, vec_load(o + v * VEC_WIDTH) + x * g[v]);
        }
        if (X->augment)
            EACH_VEC {
                double *o = diag + c0 + v * VEC_WIDTH;
                vec_store(o, vec_load(o) + g[v]);
            }
    }
}

/* s(h, x_i) by prefix sums: anova adds p_j (p_1 + ... + p_{j-1}), with p_j = h_j x_ij. */
FP_INLINE double TYPED(activation)(const struct csr_rows *X, int anova, ptrdiff_t i,
                                   const double *h) {
    const TYPE *data = X->data;
    const double *h1 = h + X->augment;
    double z = X->augment ? h[0] : 0.0, s = 0.0;
    for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
        FP_CHECK(X->indices[p] >= 0 && X->indices[p] < X->d);
        const double t = h1[X->indices[p]] * (double)data[p];
        s += t * z;
        z += t;
    }
    return anova ? s : z * z;
}

FP_INLINE void TYPED(forms)(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                            const double *FP_RESTRICT D, ptrdiff_t m,
                            const double *FP_RESTRICT h, double *FP_RESTRICT q) {
    for (ptrdiff_t i = first; i < last; i++) {
        const double s = TYPED(activation)(X, anova, i, h);
        const double *gradient = D + i * m;
        FP_SIMD
        for (ptrdiff_t c = 0; c < m; c++) q[c] += s * gradient[c];
    }
}

FP_INLINE void TYPED(combine)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                              const double *FP_RESTRICT D, ptrdiff_t m,
                              const double *FP_RESTRICT w, const double *FP_RESTRICT h,
                              double *FP_RESTRICT out) {
    const TYPE *data = X->data;
    const double *h1 = h + X->augment;
    double *out1 = out + X->augment, sum = 0.0;
    for (ptrdiff_t i = first; i < last; i++) {
        const double *gradient = D + i * m;
        double weight = 0.0, z = X->augment ? h[0] : 0.0;
        for (ptrdiff_t c = 0; c < m; c++) weight += gradient[c] * w[c];
        for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++) {
            FP_CHECK(X->indices[p] >= 0 && X->indices[p] < X->d);
            z += h1[X->indices[p]] * (double)data[p];
        }
        z *= weight;
        sum += z;
        for (int64_t p = X->indptr[i]; p < X->indptr[i + 1]; p++)
            out1[X->indices[p]] += z * (double)data[p];
    }
    if (X->augment) out[0] += sum;
}

FP_INLINE void TYPED(pair_combine)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                                   const double *FP_RESTRICT D, ptrdiff_t m,
                                   const double *FP_RESTRICT w, const double *FP_RESTRICT h,
                                   double *FP_RESTRICT out) {
    const TYPE *data = X->data;
    const int32_t *indices = X->indices;
    const double h_0 = X->augment ? h[0] : 0.0, *h1 = h + X->augment;
    double *out1 = out + X->augment, out_0 = 0.0;
    for (ptrdiff_t i = first; i < last; i++) {
        FP_CHECK(indices[2 * i] >= 0 && indices[2 * i] < X->d);
        FP_CHECK(indices[2 * i + 1] >= 0 && indices[2 * i + 1] < X->d);
        const ptrdiff_t u = indices[2 * i], j = indices[2 * i + 1];
        const double a = (double)data[2 * i], b = (double)data[2 * i + 1];
        const double at_u = a * h1[u], at_j = b * h1[j], *gradient = D + i * m;
        double weight = 0.0;
        for (ptrdiff_t c = 0; c < m; c++) weight += gradient[c] * w[c];
        out_0 += weight * (at_u + at_j);
        out1[u] += weight * a * (h_0 + at_j);
        out1[j] += weight * b * (h_0 + at_u);
    }
    if (X->augment) out[0] += out_0;
}
