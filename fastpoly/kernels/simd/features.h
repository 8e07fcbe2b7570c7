/* Inner loops over CSR rows for activations, their gradient and linear terms; formulas in
 * features.pyx.
 *
 * Ht (d, ld) is H transposed, its k columns padded to ld = 4 ceil(k / 4): the loop over basis
 * vectors is innermost and contiguous. With `augment` the row of x_i is [1, x_i].
 * S and M (last - first, k) are compact: a padded store overwrites the start of the next row, which
 * is written after it. Only the last row is stored exactly.
 */
#ifndef FP_FEATURES_H
#define FP_FEATURES_H

#include "rows.h"

struct features_loops {
    /* S_i = s(H x_i) for rows first..last-1 */
    void (*activations)(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                        const double *Ht, ptrdiff_t k, double *S);
    /* Gt_j: += x_ij M_i * z_i (squared), x_ij M_i * (z_i - x_ij h_j) (anova), z_i = H x_i */
    void (*basis_grad)(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                       const double *Ht, ptrdiff_t k, const double *M, double *Gt);
    /* O_i += W' x_i with W (d, ld), O (last - first, m) compact */
    void (*linear)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last, const double *W,
                   ptrdiff_t m, double *O);
    /* G_j += x_ij D_i with G (d, ld), D (last - first, m) compact */
    void (*linear_grad)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                        const double *D, ptrdiff_t m, double *G);
    /* Gt_j += x_ij^2 U_i * z_i^2 (squared), x_ij^2 U_i * (z_i - x_ij h_j)^2 (anova) */
    void (*basis_curvature)(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                            const double *Ht, ptrdiff_t k, const double *U, double *Gt);
};

FP_CHOOSE(features_loops)

#endif
