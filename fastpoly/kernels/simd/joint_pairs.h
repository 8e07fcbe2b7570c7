/* Rows with exactly two entries, a of feature u and b of feature j, in the joint pass.
 *
 * The rows of one user u are next to each other. With the constant h_0 (0 without `augment`) and
 *     q = h_0 + a h_u,   f = 1, p = a h_0*h_u (anova),   f = 2, p = q*q (squared)
 * an activation is s = p + f b q*h_j, plus b^2 h_j*h_j if squared, and the outputs of a row are
 *     o = V'p + b A'h_j + b^2 c_j,   A = f diag(q) V,   c_j = V'(h_j*h_j) (squared; once per pass).
 * So a row costs one product with A. Backward, a group of rows with the same u and a needs
 *     B = sum_i b_i h_j d_i',   t = sum_i d_i
 * for GV += f diag(q) B + p t' and for dF/dq = f (V*B) 1 (+ 2 q*(V t) if squared), and a row costs
 * one product for B and one for Gt_j += b A d_i. The squares b^2 are summed by feature and enter the
 * gradients at the end: E_j = sum_i b_i^2 d_i.
 */

#define CACHE_LINE 8 /* doubles */

FP_INLINE double entry(const struct csr_rows *X, ptrdiff_t p) {
    if (X->ones) return 1.0;
    return X->single ? (double)((const float *)X->data)[p] : ((const double *)X->data)[p];
}

/* The end of the group of rows, before `last`, that begins at `first`. */
FP_INLINE ptrdiff_t group_end(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last) {
    const int32_t u = X->indices[2 * first];
    ptrdiff_t i = first + 1;
    if (X->ones)
        while (i < last && X->indices[2 * i] == u) i++;
    else {
        const double a = entry(X, 2 * first);
        while (i < last && X->indices[2 * i] == u && entry(X, 2 * i) == a) i++;
    }
    return i;
}

/* Columns r.. of q, and p */
FP_INLINE vec group_q(const struct pair_model *P, const double *h_u, double a, ptrdiff_t r, vec *p) {
    const vec h = vec_set(a) * vec_load(h_u + r);
    const vec h_0 = P->X.augment ? vec_load(P->Ht + r) : vec_set(0);
    const vec q = h_0 + h;
    *p = P->anova ? h_0 * h : q * q;
    return q;
}

/* A (m, ld) of a group, and the common part of its outputs, o (m) */
static void group_weights(const struct pair_model *P, ptrdiff_t u, double a, double *A, double *o) {
    const ptrdiff_t ld = PADDED(P->k), width = PADDED(P->m);
    const double *h_u = P->Ht + (u + P->X.augment) * ld;
    const vec f = vec_set(P->anova ? 1.0 : 2.0);
    for (ptrdiff_t c = 0; c < P->m; c++) {
        vec sum = vec_set(0);
        for (ptrdiff_t r = 0; r < ld; r += VEC_WIDTH) {
            vec p;
            const vec v = vec_load(P->Vt + c * ld + r), q = group_q(P, h_u, a, r, &p);
            sum += v * p;
            vec_store(A + c * ld + r, f * v * q);
        }
        o[c] = vec_sum(sum);
        if (P->W) {
            o[c] += P->b[c] + a * P->W[(u + P->X.augment) * width + c];
            if (P->X.augment) o[c] += P->W[c];
        }
    }
}

/* Prefetch the items of rows first..last-1 in a table (d, ld), because few are in cache. */
FP_INLINE void prefetch_rows(const struct pair_model *P, const double *table, ptrdiff_t first,
                             ptrdiff_t last, const int write) {
    const ptrdiff_t ld = PADDED(P->k);
    for (ptrdiff_t i = first; i < last; i++) {
        const double *row = table + (P->X.indices[2 * i + 1] + P->X.augment) * ld;
        for (ptrdiff_t r = 0; r < ld; r += CACHE_LINE) __builtin_prefetch(row + r, write);
    }
}

/* Outputs c0..c0+NC-1 of NR rows of a group */
FP_INLINE void pair_outputs_tile(const int NR, const int NC, const struct pair_model *P,
                                 ptrdiff_t i, ptrdiff_t c0, const double *A, const double *o,
                                 double *O) {
    const ptrdiff_t ld = PADDED(P->k), width = PADDED(P->m);
    const double *h[4];
    ptrdiff_t at[4];
    vec acc[12];
    double dots[12];
    for (int r = 0; r < NR; r++) {
        at[r] = P->X.indices[2 * (i + r) + 1] + P->X.augment;
        FP_CHECK(at[r] >= P->X.augment && at[r] < P->X.d + P->X.augment);
        h[r] = P->Ht + at[r] * ld;
    }
    for (int t = 0; t < NR * NC; t++) acc[t] = vec_set(0);
    A += c0 * ld;
    for (ptrdiff_t v = 0; v < ld; v += VEC_WIDTH) {
        vec x[4];
        for (int r = 0; r < NR; r++) x[r] = vec_load(h[r] + v);
        for (int c = 0; c < NC; c++) {
            const vec w = vec_load(A + c * ld + v);
            for (int r = 0; r < NR; r++) acc[r * NC + c] += w * x[r];
        }
    }
    if (NC == VEC_WIDTH) {
        for (int r = 0; r < NR; r++) {
            const vec b = vec_set(entry(&P->X, 2 * (i + r) + 1));
            vec lanes[4];
            vec_transpose(acc + r * NC, lanes);
            vec dot = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
            if (P->W) dot += vec_load(P->W + at[r] * width + c0);
            if (P->C) dot += b * vec_load(P->C + at[r] * width + c0);
            vec_store(O + r * P->m + c0, vec_load(o + c0) + b * dot);
        }
        return;
    }
    if (NR == 4) {
        for (int t = 0; t < NR * NC; t += 4) {
            vec lanes[4];
            vec_transpose(acc + t, lanes);
            vec_store(dots + t, (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
        }
    } else {
        for (int t = 0; t < NR * NC; t++) dots[t] = vec_sum(acc[t]);
    }
    for (int r = 0; r < NR; r++) {
        const double b = entry(&P->X, 2 * (i + r) + 1);
        double *out = O + r * P->m + c0;
        for (int c = 0; c < NC; c++) {
            double dot = dots[r * NC + c];
            if (P->W) dot += P->W[at[r] * width + c0 + c];
            if (P->C) dot += b * P->C[at[r] * width + c0 + c];
            out[c] = o[c0 + c] + b * dot;
        }
    }
}

FP_INLINE void pair_outputs_group(const int NR, const int NC, const struct pair_model *P,
                                  ptrdiff_t first, ptrdiff_t last, ptrdiff_t c0, const double *A,
                                  const double *o, double *O) {
    ptrdiff_t i = first;
    for (; i + NR <= last; i += NR)
        pair_outputs_tile(NR, NC, P, i, c0, A, o, O + (i - first) * P->m);
    for (; i < last; i++) pair_outputs_tile(1, NC, P, i, c0, A, o, O + (i - first) * P->m);
}

static void pair_outputs(const struct pair_model *P, ptrdiff_t first, ptrdiff_t last, double *O,
                         double *work) {
    const ptrdiff_t m = P->m;
    double *A = work, *o = work + m * PADDED(P->k);
    for (ptrdiff_t i = first, end; i < last; i = end) {
        end = group_end(&P->X, i, last);
        FP_CHECK(P->X.indices[2 * i] >= 0 && P->X.indices[2 * i] < P->X.d);
        group_weights(P, P->X.indices[2 * i], entry(&P->X, 2 * i), A, o);
        double *out = O + (i - first) * m;
        prefetch_rows(P, P->Ht, i, end, 0);
        for (ptrdiff_t c0 = 0; c0 < m; c0 += 4) switch (m - c0) {
            case 1: pair_outputs_group(4, 1, P, i, end, c0, A, o, out); break;
            case 2: pair_outputs_group(4, 2, P, i, end, c0, A, o, out); break;
            case 3: pair_outputs_group(4, 3, P, i, end, c0, A, o, out); break;
            default: pair_outputs_group(2, 4, P, i, end, c0, A, o, out);
            }
    }
}

/* For columns r.. of NV vecs and outputs c0..: B = sum_i h_j e_i', Gt_j += A e_i */
FP_INLINE void pair_gradient_tile(const int NV, const int NC, const struct pair_model *P,
                                  ptrdiff_t first, ptrdiff_t last, ptrdiff_t c0, ptrdiff_t r,
                                  const double *A, const double *e, double *B, double *Gt) {
    const ptrdiff_t ld = PADDED(P->k), m = P->m;
    const int32_t *items = P->X.indices + 1;
    const double *H1 = P->Ht + P->X.augment * ld + r;
    double *G1 = Gt + P->X.augment * ld + r;
    vec weight[8], sum[8];
    A += c0 * ld + r;
    B += c0 * ld + r;
    e += c0;
    for (int c = 0; c < NC; c++) EACH_VEC {
        weight[c * NV + v] = vec_load(A + c * ld + v * VEC_WIDTH);
        sum[c * NV + v] = vec_set(0);
    }
    for (ptrdiff_t i = first; i < last; i++, e += m) {
        const ptrdiff_t at = items[2 * i] * ld;
        vec d[4], g[4];
        for (int c = 0; c < NC; c++) d[c] = vec_set(e[c]);
        EACH_VEC {
            const vec h = vec_load(H1 + at + v * VEC_WIDTH);
            g[v] = vec_load(G1 + at + v * VEC_WIDTH);
            for (int c = 0; c < NC; c++) {
                sum[c * NV + v] += h * d[c];
                g[v] += weight[c * NV + v] * d[c];
            }
            vec_store(G1 + at + v * VEC_WIDTH, g[v]);
        }
    }
    for (int c = 0; c < NC; c++)
        EACH_VEC vec_store(B + c * ld + v * VEC_WIDTH, sum[c * NV + v]);
}

FP_INLINE void pair_gradient_group(const int NV, const int NC, const struct pair_model *P,
                                   ptrdiff_t first, ptrdiff_t last, ptrdiff_t c0, const double *A,
                                   const double *e, double *B, double *Gt) {
    const ptrdiff_t ld = PADDED(P->k);
    ptrdiff_t r = 0;
    for (; r + NV * VEC_WIDTH <= ld; r += NV * VEC_WIDTH)
        pair_gradient_tile(NV, NC, P, first, last, c0, r, A, e, B, Gt);
    for (; r < ld; r += VEC_WIDTH) pair_gradient_tile(1, NC, P, first, last, c0, r, A, e, B, Gt);
}

/* From B (m, ld) and t (m) of a group to its part of GV, and of the gradients of h_u and h_0 */
static void group_gradient(const struct pair_model *P, ptrdiff_t u, double a, const double *B,
                           const double *t, double *Gt, double *GVt) {
    const ptrdiff_t ld = PADDED(P->k), at = (u + P->X.augment) * ld;
    const vec f = vec_set(P->anova ? 1.0 : 2.0), vec_a = vec_set(a);
    const int has_p = !P->anova || P->X.augment;
    for (ptrdiff_t r = 0; r < ld; r += VEC_WIDTH) {
        vec p, to_q = vec_set(0), to_p = vec_set(0);
        const vec q = group_q(P, P->Ht + at, a, r, &p);
        for (ptrdiff_t c = 0; c < P->m; c++) {
            double *GV = GVt + c * ld + r;
            const vec v = vec_load(P->Vt + c * ld + r), sum = vec_load(B + c * ld + r);
            vec step = f * q * sum;
            to_q += v * sum;
            if (has_p) {
                step += p * vec_set(t[c]);
                to_p += v * vec_set(t[c]);
            }
            vec_store(GV, vec_load(GV) + step);
        }
        to_q *= f;
        if (!P->anova) to_q += vec_set(2) * q * to_p;
        vec to_u = to_q, to_0 = to_q;
        if (P->anova && P->X.augment) {
            to_u += vec_load(P->Ht + r) * to_p;
            to_0 += vec_a * vec_load(P->Ht + at + r) * to_p;
        }
        vec_store(Gt + at + r, vec_load(Gt + at + r) + vec_a * to_u);
        if (P->X.augment) vec_store(Gt + r, vec_load(Gt + r) + to_0);
    }
}

/* G_j += x D_i of one row, padded to whole vecs */
FP_INLINE void add_row(double x, const double *row, ptrdiff_t width, double *G) {
    const vec scale = vec_set(x);
    for (ptrdiff_t c = 0; c < width; c += VEC_WIDTH)
        vec_store(G + c, vec_load(G + c) + scale * vec_load(row + c));
}

static void pair_gradient(const struct pair_model *P, ptrdiff_t first, ptrdiff_t last,
                          const double *D, double *work, const struct pair_sums *G) {
    const ptrdiff_t m = P->m, ld = PADDED(P->k), width = PADDED(m), constant = P->X.augment;
    double *A = work, *o = A + m * ld, *B = o + width, *t = B + m * ld, *e = t + width;
    const double *scaled = D;
    if (!P->X.ones) {
        scaled = e;
        for (ptrdiff_t i = first; i < last; i++)
            for (ptrdiff_t c = 0; c < m; c++)
                e[(i - first) * m + c] = entry(&P->X, 2 * i + 1) * D[(i - first) * m + c];
    }
    for (ptrdiff_t i = first, end; i < last; i = end) {
        end = group_end(&P->X, i, last);
        const ptrdiff_t u = P->X.indices[2 * i];
        const double a = entry(&P->X, 2 * i), *rows = scaled + (i - first) * m;
        prefetch_rows(P, G->Gt, i, end, 1);
        memset(t, 0, (size_t)width * sizeof(double));
        for (ptrdiff_t s = i; s < end; s++) {
            const ptrdiff_t j = P->X.indices[2 * s + 1] + constant;
            const double b = entry(&P->X, 2 * s + 1);
            double copy[VEC_WIDTH];
            for (ptrdiff_t c = 0; c < m; c += VEC_WIDTH) {
                const double *d = padded_row(D, s - first, last - first, m, c, 1, copy);
                add_row(1.0, d, VEC_WIDTH, t + c);
                if (G->gb) add_row(b, d, VEC_WIDTH, G->GW + j * width + c);
                if (G->E) add_row(b * b, d, VEC_WIDTH, G->E + j * width + c);
            }
        }
        group_weights(P, u, a, A, o);
        for (ptrdiff_t c0 = 0; c0 < m; c0 += 4) switch (m - c0) {
            case 1: pair_gradient_group(4, 1, P, i, end, c0, A, rows, B, G->Gt); break;
            case 2: pair_gradient_group(2, 2, P, i, end, c0, A, rows, B, G->Gt); break;
            case 3: pair_gradient_group(2, 3, P, i, end, c0, A, rows, B, G->Gt); break;
            default: pair_gradient_group(2, 4, P, i, end, c0, A, rows, B, G->Gt);
            }
        group_gradient(P, u, a, B, t, G->Gt, G->GVt);
        if (G->gb) {
            for (ptrdiff_t c = 0; c < m; c++) G->gb[c] += t[c];
            add_row(a, t, width, G->GW + (u + constant) * width);
            if (constant) add_row(1.0, t, width, G->GW);
        }
    }
}

/* c_j = V'(h_j*h_j) for features first..last-1; V (k, m), C (d, width) */
static void pair_squares(const struct pair_model *P, const double *FP_RESTRICT V, ptrdiff_t first,
                         ptrdiff_t last, double *FP_RESTRICT C) {
    const ptrdiff_t ld = PADDED(P->k), m = P->m, width = PADDED(m);
    memset(C + first * width, 0, (size_t)((last - first) * width) * sizeof(double));
    for (ptrdiff_t j = first; j < last; j++)
        for (ptrdiff_t r = 0; r < P->k; r++) {
            const double h = P->Ht[j * ld + r], square = h * h;
            FP_SIMD
            for (ptrdiff_t c = 0; c < m; c++) C[j * width + c] += square * V[r * m + c];
        }
}

/* The part of the squares in the gradients: Gt_j += 2 h_j*(V E_j), GVt += E_j h_j*h_j */
static void pair_squares_gradient(const struct pair_model *P, ptrdiff_t first, ptrdiff_t last,
                                  const struct pair_sums *G) {
    const ptrdiff_t ld = PADDED(P->k), width = PADDED(P->m);
    for (ptrdiff_t j = first; j < last; j++) {
        const double *e = G->E + j * width;
        for (ptrdiff_t r = 0; r < ld; r += VEC_WIDTH) {
            const vec h = vec_load(P->Ht + j * ld + r);
            vec to_h = vec_set(0);
            for (ptrdiff_t c = 0; c < P->m; c++) {
                double *GV = G->GVt + c * ld + r;
                to_h += vec_set(e[c]) * vec_load(P->Vt + c * ld + r);
                vec_store(GV, vec_load(GV) + vec_set(e[c]) * h * h);
            }
            double *g = G->Gt + j * ld + r;
            vec_store(g, vec_load(g) + vec_set(2) * h * to_h);
        }
    }
}
