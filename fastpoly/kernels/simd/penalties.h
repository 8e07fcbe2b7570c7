/* Sums over one row of V (m,), the innermost loops of penalties.pyx. They are here because Cython
 * cannot say that a sum may be reordered. For short rows, run-time dispatch does not pay off. */
#ifndef FP_PENALTIES_H
#define FP_PENALTIES_H

#include <math.h>

#include "isa.h"

#define FP_SUM(...) FP_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define FP_MAX(x) FP_PRAGMA(omp simd reduction(max : x))

/* max_c |v_c| */
FP_INLINE double fp_max_abs(const double *v, ptrdiff_t m) {
    double top = 0;
    FP_MAX(top)
    for (ptrdiff_t c = 0; c < m; c++) top = fabs(v[c]) > top ? fabs(v[c]) : top;
    return top;
}

/* sum_c |v_c| */
FP_INLINE double fp_sum_abs(const double *v, ptrdiff_t m) {
    double total = 0;
    FP_SUM(total)
    for (ptrdiff_t c = 0; c < m; c++) total += fabs(v[c]);
    return total;
}

/* sum_c (v_c / scale)^2 */
FP_INLINE double fp_sum_squares(const double *v, double scale, ptrdiff_t m) {
    double total = 0;
    FP_SUM(total)
    for (ptrdiff_t c = 0; c < m; c++) total += (v[c] / scale) * (v[c] / scale);
    return total;
}

/* sum_c max(|v_c| - s, 0); how many terms are positive goes to count. */
FP_INLINE double fp_sum_above(const double *v, double s, ptrdiff_t m, double *count) {
    double total = 0, number = 0;
    FP_SUM(total, number)
    for (ptrdiff_t c = 0; c < m; c++) {
        double above = fabs(v[c]) - s;
        total += above > 0 ? above : 0;
        number += above > 0 ? 1 : 0;
    }
    *count = number;
    return total;
}

/* v <- v - clip(v, -t, t); returns sum_c |v_c|. */
FP_INLINE double fp_soft_threshold(double *v, double t, ptrdiff_t m) {
    double total = 0;
    FP_SUM(total)
    for (ptrdiff_t c = 0; c < m; c++) {
        double low = v[c] > t ? t : v[c];
        v[c] -= low < -t ? -t : low;
        total += fabs(v[c]);
    }
    return total;
}

/* v <- y - s g */
FP_INLINE void fp_step(const double *y, const double *g, double s, double *FP_RESTRICT v,
                       ptrdiff_t m) {
    FP_SIMD
    for (ptrdiff_t c = 0; c < m; c++) v[c] = y[c] - s * g[c];
}

/* With step = v - y, move = v - old: sums of g step, step^2, -step move. */
FP_INLINE void fp_products(const double *y, const double *g, const double *old, const double *v,
                           ptrdiff_t m, double sums[3]) {
    double linear = 0, quadratic = 0, restart = 0;
    FP_SUM(linear, quadratic, restart)
    for (ptrdiff_t c = 0; c < m; c++) {
        double step = v[c] - y[c], move = v[c] - old[c];
        linear += g[c] * step;
        quadratic += step * step;
        restart -= step * move;
    }
    sums[0] = linear;
    sums[1] = quadratic;
    sums[2] = restart;
}

#endif
