/* See features.h. Compiled once per instruction set. */
#include "features.h"

#define TYPE float
#define TYPED(name) name##_f32
#include "features_typed.h"
#undef TYPE
#undef TYPED
#define TYPE double
#define TYPED(name) name##_f64
#include "features_typed.h"
#undef TYPE
#undef TYPED

static void activations(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                        const double *Ht, ptrdiff_t k, double *S) {
    if (X->single) activations_f32(X, anova, first, last, Ht, k, S);
    else activations_f64(X, anova, first, last, Ht, k, S);
}

static void basis_grad(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                       const double *Ht, ptrdiff_t k, const double *M, double *Gt) {
    if (X->single) basis_grad_f32(X, anova, first, last, Ht, k, M, Gt);
    else basis_grad_f64(X, anova, first, last, Ht, k, M, Gt);
}

static void linear(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last, const double *W,
                   ptrdiff_t m, double *O) {
    if (X->single) linear_f32(X, first, last, W, m, O);
    else linear_f64(X, first, last, W, m, O);
}

static void linear_grad(const struct csr_rows *X, ptrdiff_t first, ptrdiff_t last,
                        const double *D, ptrdiff_t m, double *G) {
    if (X->single) linear_grad_f32(X, first, last, D, m, G);
    else linear_grad_f64(X, first, last, D, m, G);
}

static void basis_curvature(const struct csr_rows *X, int anova, ptrdiff_t first, ptrdiff_t last,
                            const double *Ht, ptrdiff_t k, const double *U, double *Gt) {
    if (X->single) basis_curvature_f32(X, anova, first, last, Ht, k, U, Gt);
    else basis_curvature_f64(X, anova, first, last, Ht, k, U, Gt);
}

const struct features_loops FP_NAME(features_loops) = {
    activations, basis_grad, linear, linear_grad, basis_curvature,
};
