/* Inner loops of the joint pass; formulas in joint.pyx and joint_rows.pyx.
 *
 * Compact blocks have as many columns as their argument says; `ld` is a leading dimension. */
#ifndef FP_JOINT_H
#define FP_JOINT_H

#include "rows.h"

/* The input of rows with two entries: Ht (d, k padded), Vt (m, k padded), with linear terms b (m)
 * and W (d, m padded), else NULL; C (d, m padded) for the squared activation, else NULL. */
struct pair_model {
    struct csr_rows X;
    int anova;
    ptrdiff_t k, m;
    const double *Ht, *Vt, *b, *W, *C;
};

/* The sums to which they add, in the same shapes; E corresponds to C. */
struct pair_sums {
    double *Gt, *GVt, *gb, *GW, *E;
};

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
    /* Rows with two entries, see joint_pairs.h. `work` has 2 m (k padded) + 2 (m padded) doubles and
     * one for each entry of D; D and O are compact. */
    void (*pair_outputs)(const struct pair_model *P, ptrdiff_t first, ptrdiff_t last, double *O,
                         double *work);
    void (*pair_gradient)(const struct pair_model *P, ptrdiff_t first, ptrdiff_t last,
                          const double *D, double *work, const struct pair_sums *G);
    void (*pair_squares)(const struct pair_model *P, const double *V, ptrdiff_t first,
                         ptrdiff_t last, double *C);
    void (*pair_squares_gradient)(const struct pair_model *P, ptrdiff_t first, ptrdiff_t last,
                                  const struct pair_sums *G);
};

FP_CHOOSE(joint_loops)

#endif
