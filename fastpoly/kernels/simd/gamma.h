/* Inner loops of the operators Gamma_c for CSR rows; formulas in gamma.pyx.
 *
 * Blocks B, out, diag (d, ld) have their columns padded to ld = 4 ceil(m / 4), so every loop over
 * outputs has a fixed width. D (n, m) is compact: a row is read past its end into the next one (the
 * surplus ends up in padded columns, which are never read). The last row goes through a copy.
 * With `augment` the row of x_i is [1, x_i]: row 0 of every block belongs to the constant.
 */
#ifndef FP_GAMMA_H
#define FP_GAMMA_H

#include "rows.h"

struct gamma_loops {
    /* out += X' diag(D_:c) X B_:c over rows first..last-1, for all c */
    void (*matvecs)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                    const double *D, ptrdiff_t m, const double *B, double *out);
    /* the same for rows with exactly two entries; with `anova`, only its off-diagonal part */
    void (*pair_matvecs)(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                         const double *D, ptrdiff_t m, const double *B, double *out);
    /* diag += sum_i D_i x_i*x_i, (d, ld) */
    void (*diagonal)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                     const double *D, ptrdiff_t m, double *diag);
    /* q += sum_i D_i s(h, x_i), (ld,) */
    void (*forms)(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                  const double *D, ptrdiff_t m, const double *h, double *q);
    /* out += sum_i (D_i'w) (x_i'h) x_i, (d,); w (ld,) padded with zeros */
    void (*combine)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                    const double *D, ptrdiff_t m, const double *w, const double *h, double *out);
    /* the same for rows with exactly two entries, without the diagonal part:
     * out_u += sum_i (D_i'w) a b h_j and so on, with the constant as a third entry */
    void (*pair_combine)(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                         const double *D, ptrdiff_t m, const double *w, const double *h,
                         double *out);
    /* forms and combine for `rows` dense rows x (rows, d), the constant included */
    void (*dense_forms)(const double *x, int anova, ptrdiff_t rows, ptrdiff_t d,
                        const double *D, ptrdiff_t m, const double *h, double *q);
    void (*dense_combine)(const double *x, ptrdiff_t rows, ptrdiff_t d, const double *D,
                          ptrdiff_t m, const double *w, const double *h, double *out);
    /* out_ic = sum_j G_ijc B_jc with G (d, d, ld) */
    void (*explicit_matvecs)(const double *G, ptrdiff_t d, ptrdiff_t ld, const double *B,
                             double *out);
    /* P (rows, cols): products x_i x_j, i in [i0, i1), j >= i, for each dense row */
    void (*products)(const double *x, ptrdiff_t rows, ptrdiff_t d, ptrdiff_t i0, ptrdiff_t i1,
                     ptrdiff_t cols, double *P);
    /* Lanczos: coef_j = sum_rows Q_j * w for j < steps, then w -= sum_j coef_j * Q_j; all
     * blocks (d, ld), coef (steps, ld) */
    void (*orthogonalise)(const double *Q, ptrdiff_t steps, ptrdiff_t d, ptrdiff_t ld,
                          double *w, double *coef);
    /* dots_c = sum_rows a_:c b_:c, (ld,) */
    void (*column_dots)(const double *a, const double *b, ptrdiff_t d, ptrdiff_t ld, double *dots);
    /* Row descent: g += t B with `size` entries */
    void (*add_multiple)(const double *B, ptrdiff_t size, double t, double *g);
};

FP_CHOOSE(gamma_loops)

#endif
