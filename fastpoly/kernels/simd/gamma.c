/* See gamma.h. Compiled once per instruction set. */
#include "gamma.h"

#define TYPE float
#define TYPED(name) name##_f32
#include "gamma_typed.h"
#undef TYPE
#undef TYPED
#define TYPE double
#define TYPED(name) name##_f64
#include "gamma_typed.h"
#undef TYPE
#undef TYPED

/* A few rows at a time, so that they stay in cache for all groups of columns. */
#define ROW_BLOCK 256
#define FOR_ROW_BLOCKS                                                                     \
    for (ptrdiff_t start = first, stop; start < last; start = stop)                        \
        if ((stop = start + ROW_BLOCK < last ? start + ROW_BLOCK : last), 1)

static void matvecs(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last, const double *D,
                    ptrdiff_t m, const double *B, double *out) {
    FOR_ROW_BLOCKS {
        if (X->single) {
#define CALL(NV) matvecs_f32(NV, X, start, stop, D, m, c0, B, out)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        } else {
#define CALL(NV) matvecs_f64(NV, X, start, stop, D, m, c0, B, out)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        }
    }
}

/* One-hot rows, the common case, have one loop per kind; for other values the loop decides. */
#define ONES(NV, ANOVA, AUGMENT) \
    pairs_f64(NV, ANOVA, AUGMENT, 1, X, start, stop, D, m, c0, B, out)

static void pair_matvecs(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                         const double *D, ptrdiff_t m, const double *B, double *out) {
    FOR_ROW_BLOCKS {
        if (X->ones) {
#define CALL(NV)                                                                           \
    do {                                                                                   \
        if (anova && X->augment) ONES(NV, 1, 1);                                           \
        else if (anova) ONES(NV, 1, 0);                                                    \
        else if (X->augment) ONES(NV, 0, 1);                                               \
        else ONES(NV, 0, 0);                                                               \
    } while (0)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        } else if (X->single) {
#define CALL(NV) pairs_f32(NV, anova, X->augment, 0, X, start, stop, D, m, c0, B, out)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        } else {
#define CALL(NV) pairs_f64(NV, anova, X->augment, 0, X, start, stop, D, m, c0, B, out)
            FOR_COLUMN_GROUPS(CALL)
#undef CALL
        }
    }
}

static void diagonal(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last, const double *D,
                     ptrdiff_t m, double *diag) {
    if (X->single) {
#define CALL(NV) diagonal_f32(NV, X, first, last, D, m, c0, diag)
        FOR_COLUMN_GROUPS(CALL)
#undef CALL
    } else {
#define CALL(NV) diagonal_f64(NV, X, first, last, D, m, c0, diag)
        FOR_COLUMN_GROUPS(CALL)
#undef CALL
    }
}

static void forms(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                  const double *D, ptrdiff_t m, const double *h, double *q) {
    if (X->single) forms_f32(X, anova, first, last, D, m, h, q);
    else forms_f64(X, anova, first, last, D, m, h, q);
}

static void combine(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last, const double *D,
                    ptrdiff_t m, const double *w, const double *h, double *out) {
    if (X->single) combine_f32(X, first, last, D, m, w, h, out);
    else combine_f64(X, first, last, D, m, w, h, out);
}

static void pair_combine(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                         const double *D, ptrdiff_t m, const double *w, const double *h,
                         double *out) {
    if (X->single) pair_combine_f32(X, first, last, D, m, w, h, out);
    else pair_combine_f64(X, first, last, D, m, w, h, out);
}

static void column_dots(const double *a, const double *b, ptrdiff_t d, ptrdiff_t ld,
                        double *dots) {
    for (ptrdiff_t c = 0; c < ld; c += VEC_WIDTH) {
        vec even = vec_set(0), odd = vec_set(0);
        ptrdiff_t j = 0;
        for (; j + 1 < d; j += 2) {
            even += vec_load(a + j * ld + c) * vec_load(b + j * ld + c);
            odd += vec_load(a + (j + 1) * ld + c) * vec_load(b + (j + 1) * ld + c);
        }
        if (j < d) even += vec_load(a + j * ld + c) * vec_load(b + j * ld + c);
        vec_store(dots + c, even + odd);
    }
}

static void dense_forms(const double *x, int anova, ptrdiff_t rows, ptrdiff_t d, const double *D,
                        ptrdiff_t m, const double *h, double *q) {
    for (ptrdiff_t i = 0; i < rows; i++, x += d, D += m) {
        double z = 0.0, squares = 0.0;
        _Pragma("omp simd reduction(+ : z, squares)")
        for (ptrdiff_t j = 0; j < d; j++) {
            const double t = x[j] * h[j];
            z += t;
            squares += t * t;
        }
        const double s = anova ? 0.5 * (z * z - squares) : z * z;
        FP_SIMD
        for (ptrdiff_t c = 0; c < m; c++) q[c] += s * D[c];
    }
}

static void dense_combine(const double *x, ptrdiff_t rows, ptrdiff_t d, const double *D,
                          ptrdiff_t m, const double *w, const double *FP_RESTRICT h,
                          double *FP_RESTRICT out) {
    for (ptrdiff_t i = 0; i < rows; i++, x += d, D += m) {
        double z = 0.0, weight = 0.0;
        for (ptrdiff_t c = 0; c < m; c++) weight += D[c] * w[c];
        _Pragma("omp simd reduction(+ : z)")
        for (ptrdiff_t j = 0; j < d; j++) z += x[j] * h[j];
        z *= weight;
        FP_SIMD
        for (ptrdiff_t j = 0; j < d; j++) out[j] += z * x[j];
    }
}

static void explicit_matvecs(const double *G, ptrdiff_t d, ptrdiff_t ld, const double *B,
                             double *out) {
    for (ptrdiff_t i = 0; i < d; i++)
        column_dots(G + i * d * ld, B, d, ld, out + i * ld);
}

static void products(const double *x, ptrdiff_t rows, ptrdiff_t d, ptrdiff_t i0, ptrdiff_t i1,
                     ptrdiff_t cols, double *FP_RESTRICT P) {
    for (ptrdiff_t r = 0; r < rows; r++, x += d, P += cols) {
        double *p = P;
        for (ptrdiff_t i = i0; i < i1; i++) {
            const double a = x[i];
            FP_SIMD
            for (ptrdiff_t j = i; j < d; j++) p[j - i] = a * x[j];
            p += d - i;
        }
    }
}

/* Blocks of rows of w stay in cache for all Q_j. */
static void orthogonalise(const double *Q, ptrdiff_t steps, ptrdiff_t d, ptrdiff_t ld, double *w,
                          double *coef) {
    const ptrdiff_t size = d * ld;
    for (ptrdiff_t j = 0; j < steps; j++) column_dots(Q + j * size, w, d, ld, coef + j * ld);
    for (ptrdiff_t start = 0; start < d; start += 64) {
        const ptrdiff_t stop = start + 64 < d ? start + 64 : d;
        for (ptrdiff_t j = 0; j < steps; j++)
            for (ptrdiff_t c = 0; c < ld; c += VEC_WIDTH) {
                const vec t = vec_load(coef + j * ld + c);
                const double *q = Q + j * size + c;
                for (ptrdiff_t i = start; i < stop; i++)
                    vec_store(w + i * ld + c, vec_load(w + i * ld + c) - t * vec_load(q + i * ld));
            }
    }
}

static void add_multiple(const double *FP_RESTRICT B, ptrdiff_t size, double t,
                         double *FP_RESTRICT g) {
    FP_SIMD
    for (ptrdiff_t i = 0; i < size; i++) g[i] += t * B[i];
}

const struct gamma_loops FP_NAME(gamma_loops) = {
    matvecs, pair_matvecs, diagonal, forms, combine, pair_combine, dense_forms, dense_combine,
    explicit_matvecs, products, orthogonalise, column_dots, add_multiple,
};
