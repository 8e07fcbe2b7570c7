/* Whole-matrix loops of the losses; see losses.c for the formulas.
 *
 * Shapes, all C order: O (n, m) outputs, G (n, m) gradients or NULL, w (n,) weights or NULL (ones),
 * Y (n, 1) class codes in 0 .. m - 1 for the multi-class losses, (n, m) for the others.
 * Each returns sum_i w_i l(y_i, o_i). G must not overlap the inputs.
 */
#ifndef FP_LOSSES_H
#define FP_LOSSES_H

#include "isa.h"

typedef double (*fp_loss_rows)(const double *Y, const double *O, const double *w, double *G,
                               ptrdiff_t n, ptrdiff_t m);

struct losses_loops {
    fp_loss_rows multiclass_logistic;
    fp_loss_rows smoothed_multiclass_hinge;
    fp_loss_rows multiclass_squared_hinge;
    fp_loss_rows binary_logistic;
    fp_loss_rows smoothed_binary_hinge;
    fp_loss_rows binary_squared_hinge;
    fp_loss_rows squared;
    /* l*(y, scale u) of one row; margin 0 (logistic) or 1 (smoothed hinge) */
    double (*softmax_conjugate)(const double *u, double scale, ptrdiff_t label, double margin,
                                ptrdiff_t m);
    double (*binary_soft_conjugate)(const double *y, const double *u, double scale, double margin,
                                    ptrdiff_t m);
    /* Whether low <= x < high for all n entries; false for NaN. */
    int (*all_within)(const double *x, ptrdiff_t n, double low, double high);
};

FP_CHOOSE(losses_loops)

#endif
