/* See joint.h. Compiled once per instruction set. */
#include "joint.h"

static void activate(const double *FP_RESTRICT Z, const double *FP_RESTRICT Q, ptrdiff_t size,
                     double *FP_RESTRICT S) {
    if (Q == NULL) {
        FP_SIMD
        for (ptrdiff_t i = 0; i < size; i++) S[i] = Z[i] * Z[i];
    } else {
        FP_SIMD
        for (ptrdiff_t i = 0; i < size; i++) S[i] = 0.5 * (Z[i] * Z[i] - Q[i]);
    }
}

static void multiply(double factor, const double *FP_RESTRICT M, ptrdiff_t size,
                     double *FP_RESTRICT Z) {
    FP_SIMD
    for (ptrdiff_t i = 0; i < size; i++) Z[i] *= factor * M[i];
}

static void fill_rows(const double *FP_RESTRICT b, ptrdiff_t n, ptrdiff_t m,
                      double *FP_RESTRICT O) {
    if (b == NULL) {
        memset(O, 0, (size_t)(n * m) * sizeof(double));
        return;
    }
    for (ptrdiff_t i = 0; i < n; i++, O += m) {
        FP_SIMD
        for (ptrdiff_t c = 0; c < m; c++) O[c] = b[c];
    }
}

static void add_rows(const double *FP_RESTRICT D, ptrdiff_t n, ptrdiff_t m,
                     double *FP_RESTRICT g) {
    for (ptrdiff_t i = 0; i < n; i++, D += m) {
        FP_SIMD
        for (ptrdiff_t c = 0; c < m; c++) g[c] += D[c];
    }
}

/* Four columns of A at a time, so that two visits use all of the cache lines of the k rows. */
static void transpose(const double *FP_RESTRICT A, ptrdiff_t k, ptrdiff_t d, ptrdiff_t first,
                      ptrdiff_t last, ptrdiff_t ld, double *FP_RESTRICT At) {
    for (ptrdiff_t j = first; j < last; j += VEC_WIDTH) {
        const int whole = j + VEC_WIDTH <= last;
        for (ptrdiff_t r = 0; r < ld; r += VEC_WIDTH) {
            if (whole && r + VEC_WIDTH <= k) {
                vec from[4], to[4];
                for (int v = 0; v < 4; v++) from[v] = vec_load(A + (r + v) * d + j);
                vec_transpose(from, to);
                for (int v = 0; v < 4; v++) vec_store(At + (j + v) * ld + r, to[v]);
            } else {
                for (ptrdiff_t i = j; i < j + VEC_WIDTH && i < last; i++)
                    for (ptrdiff_t q = r; q < r + VEC_WIDTH; q++)
                        At[i * ld + q] = q < k ? A[q * d + i] : 0.0;
            }
        }
    }
}

static void transpose_sums(double factor, const double *FP_RESTRICT At, ptrdiff_t slot,
                           int n_threads, ptrdiff_t k, ptrdiff_t d, ptrdiff_t first,
                           ptrdiff_t last, ptrdiff_t ld, double *FP_RESTRICT A) {
    const vec scale = vec_set(factor);
    for (ptrdiff_t j = first; j < last; j += VEC_WIDTH)
        for (ptrdiff_t r = 0; r < k; r += VEC_WIDTH) {
            const ptrdiff_t rows = j + VEC_WIDTH <= last ? VEC_WIDTH : last - j;
            vec from[4], to[4];
            for (ptrdiff_t v = 0; v < 4; v++) {
                from[v] = vec_set(0);
                if (v < rows)
                    for (int t = 0; t < n_threads; t++)
                        from[v] += vec_load(At + t * slot + (j + v) * ld + r);
                from[v] *= scale;
            }
            vec_transpose(from, to);
            for (ptrdiff_t v = 0; v < 4 && r + v < k; v++) {
                double *out = A + (r + v) * d + j;
                if (rows == VEC_WIDTH) vec_store(out, to[v]);
                else
                    for (ptrdiff_t c = 0; c < rows; c++) out[c] = to[v][c];
            }
        }
}

#include "joint_pairs.h"

const struct joint_loops FP_NAME(joint_loops) = {
    activate, multiply, fill_rows, add_rows, transpose, transpose_sums, pair_outputs, pair_gradient,
    pair_squares, pair_squares_gradient,
};
