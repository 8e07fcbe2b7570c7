/* Rows of a CSR matrix, and the padding shared by all loops over outputs or basis vectors. */
#ifndef FP_ROWS_H
#define FP_ROWS_H

#include "isa.h"
#include "vec.h"

struct csr_rows {
    const int64_t *indptr;
    const int32_t *indices;
    const void *data; /* float or double, as `single` says */
    ptrdiff_t n, d;   /* d without the constant */
    int single, augment;
    int ones;         /* whether every stored value is 1, so that `data` need not be read */
};

#define MAX_VECS 4 /* columns are handled in groups of at most 16 */
#define PADDED(m) (((m) + VEC_WIDTH - 1) / VEC_WIDTH * VEC_WIDTH)
#define EACH_VEC for (int v = 0; v < NV; v++)

/* Call body(NV, ...) with a constant NV for each group of columns c0.. of m. */
#define FOR_COLUMN_GROUPS(CALL)                                                            \
    for (ptrdiff_t c0 = 0; c0 < PADDED(m); c0 += MAX_VECS * VEC_WIDTH) {                   \
        ptrdiff_t vecs = (PADDED(m) - c0) / VEC_WIDTH;                                     \
        switch (vecs < MAX_VECS ? vecs : MAX_VECS) {                                       \
        case 1: CALL(1); break;                                                            \
        case 2: CALL(2); break;                                                            \
        case 3: CALL(3); break;                                                            \
        default: CALL(4);                                                                  \
        }                                                                                  \
    }

/* Columns c0.. of row i of a compact A (n, m), readable up to the padded width: rows are read past
 * their end into the next one, but the last rows go through a copy. */
FP_INLINE const double *padded_row(const double *A, ptrdiff_t i, ptrdiff_t n, ptrdiff_t m,
                                   ptrdiff_t c0, int NV, double *copy) {
    if (i * m + c0 + NV * VEC_WIDTH <= n * m) return A + i * m + c0;
    for (int c = 0; c < NV * VEC_WIDTH; c++) copy[c] = c0 + c < m ? A[i * m + c0 + c] : 0.0;
    return copy;
}

#endif
