/* Inner loops of the joint pass; formulas in joint.pyx and joint_rows.pyx.
 *
 * Compact blocks have as many columns as they are told; `ld` is a leading dimension. */
#ifndef FP_JOINT_H
#define FP_JOINT_H

#include "rows.h"

struct joint_loops {
    /* S = Z * Z, or (Z * Z - Q) / 2 where Q is given */
    void (*activate)(const double *Z, const double *Q, ptrdiff_t size, double *S);
    /* Z *= factor * M */
    void (*multiply)(double factor, const double *M, ptrdiff_t size, double *Z);
    /* rows of O (n, m) = b, or 0 where b is NULL */
    void (*fill_rows)(const double *b, ptrdiff_t n, ptrdiff_t m, double *O);
    /* g_c += sum_i D_ic, D (n, m) */
    void (*add_rows)(const double *D, ptrdiff_t n, ptrdiff_t m, double *g);
    /* rows first..last-1 of At (d, ld) = A' with A (k, d); columns k.. are 0 */
    void (*transpose)(const double *A, ptrdiff_t k, ptrdiff_t d, ptrdiff_t first, ptrdiff_t last,
                      ptrdiff_t ld, double *At);
    /* columns first..last-1 of A (k, d) = factor * sum_t At_t', At_t (d, ld) at At + t * slot */
    void (*transpose_sums)(double factor, const double *At, ptrdiff_t slot, int n_threads,
                           ptrdiff_t k, ptrdiff_t d, ptrdiff_t first, ptrdiff_t last,
                           ptrdiff_t ld, double *A);
};

FP_CHOOSE(joint_loops)

#endif
