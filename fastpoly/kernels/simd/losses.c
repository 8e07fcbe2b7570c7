/* Inner loops of the losses. They are arranged so that exp and log1p always run over long
 * contiguous arrays, as wide as the processor, whatever m is.
 */
#include "losses.h"

#include <math.h>

#include "vec.h"
#include "vexp.h"

#define SIMD_SUM(...) FP_PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define SIMD_MAX(x) FP_PRAGMA(omp simd reduction(max : x))

FP_INLINE double weight_of(const double *w, ptrdiff_t i) { return w ? w[i] : 1.0; }

/* Multi-class logistic (margin 0) and smoothed multi-class hinge (margin 1)
 *
 *     l(y, o) = log(1 + sum_{c != y} exp(margin + o_c - o_y)).
 *
 * With z = o - margin e_y, top = max(z), e = exp(z - top) and rest = sum_{c != y} e_c:
 *     l = log1p(rest + (e_y - 1)) - (z_y - top)   (z_y = top: log1p(rest), exact for tiny losses)
 *     dl/do_c = e_c / (rest + e_y), c != y;       dl/do_y = -rest / (rest + e_y)
 */

enum { ROWS = 32, SHORT = 64 }; /* rows of a block; blocks are used for up to SHORT outputs */

/* max(top, o[first .. last - 1]) */
FP_INLINE double max_of(double top, const double *o, ptrdiff_t first, ptrdiff_t last) {
    SIMD_MAX(top)
    for (ptrdiff_t c = first; c < last; c++) top = o[c] > top ? o[c] : top;
    return top;
}

/* sum of exp(o[first .. last - 1] - top); each term goes to g unless it is NULL. */
FP_INLINE double sum_of_exp(const double *FP_RESTRICT o, double top, double *FP_RESTRICT g,
                            ptrdiff_t first, ptrdiff_t last) {
    double sum = 0.0;
    if (!g) {
        SIMD_SUM(sum)
        for (ptrdiff_t c = first; c < last; c++) sum += fp_exp(o[c] - top);
        return sum;
    }
    FP_SIMD
    for (ptrdiff_t c = first; c < last; c++) g[c] = fp_exp(o[c] - top);
    SIMD_SUM(sum)
    for (ptrdiff_t c = first; c < last; c++) sum += g[c];
    return sum;
}

/* One row, vectorized over its outputs. */
static double softmax_row(ptrdiff_t label, const double *o, double w, double *g, ptrdiff_t m,
                          double margin) {
    if (!(w > 0.0)) {
        if (g) memset(g, 0, m * sizeof *g);
        return 0.0;
    }
    const double top = max_of(max_of(o[label] - margin, o, 0, label), o, label + 1, m);
    const double z_y = (o[label] - margin) - top, e_y = fp_exp(z_y);
    const double rest = sum_of_exp(o, top, g, 0, label) + sum_of_exp(o, top, g, label + 1, m);
    if (g) {
        const double scale = w / (rest + e_y);
        g[label] = 0.0 - rest;
        FP_SIMD
        for (ptrdiff_t c = 0; c < m; c++) g[c] *= scale;
    }
    return w * (fp_log1p(rest + (e_y - 1.0)) - z_y);
}

/* to (columns, rows) = from (rows, columns) transposed, in squares of four, then the remainder. */
FP_INLINE void transpose(const double *FP_RESTRICT from, ptrdiff_t rows, ptrdiff_t columns,
                         double *FP_RESTRICT to) {
    const ptrdiff_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (ptrdiff_t c = 0; c < whole_columns; c += 4)
        for (ptrdiff_t i = 0; i < whole_rows; i += 4) {
            vec square[4], turned[4];
            for (int r = 0; r < 4; r++) square[r] = vec_load(from + (i + r) * columns + c);
            vec_transpose(square, turned);
            for (int r = 0; r < 4; r++) vec_store(to + (c + r) * rows + i, turned[r]);
        }
    for (ptrdiff_t c = whole_columns; c < columns; c++)
        for (ptrdiff_t i = 0; i < rows; i++) to[c * rows + i] = from[i * columns + c];
    for (ptrdiff_t c = 0; c < whole_columns; c++)
        for (ptrdiff_t i = whole_rows; i < rows; i++) to[c * rows + i] = from[i * columns + c];
}

/* ROWS rows of at most SHORT outputs, transposed so that the loops run over the rows. */
FP_INLINE double softmax_block(const double *FP_RESTRICT Y, const double *FP_RESTRICT O,
                               const double *FP_RESTRICT w, double *FP_RESTRICT G, ptrdiff_t m,
                               double margin) {
    double E[SHORT * ROWS]; /* (m, ROWS): z, then e */
    double W[ROWS], top[ROWS], z_y[ROWS], e_y[ROWS], rest[ROWS], scale[ROWS], value = 0.0;
    transpose(O, ROWS, m, E);
    for (ptrdiff_t i = 0; i < ROWS; i++) {
        W[i] = weight_of(w, i);
        z_y[i] = E[(ptrdiff_t)Y[i] * ROWS + i] -= margin;
        top[i] = z_y[i];
        rest[i] = 0.0;
    }
    for (ptrdiff_t c = 0; c < m; c++) {
        FP_SIMD
        for (ptrdiff_t i = 0; i < ROWS; i++)
            top[i] = E[c * ROWS + i] > top[i] ? E[c * ROWS + i] : top[i];
    }
    for (ptrdiff_t c = 0; c < m; c++) {
        FP_SIMD
        for (ptrdiff_t i = 0; i < ROWS; i++) E[c * ROWS + i] = fp_exp(E[c * ROWS + i] - top[i]);
    }
    for (ptrdiff_t i = 0; i < ROWS; i++) {
        e_y[i] = E[(ptrdiff_t)Y[i] * ROWS + i];
        E[(ptrdiff_t)Y[i] * ROWS + i] = 0.0;
    }
    for (ptrdiff_t c = 0; c < m; c++) {
        FP_SIMD
        for (ptrdiff_t i = 0; i < ROWS; i++) rest[i] += E[c * ROWS + i];
    }
    SIMD_SUM(value)
    for (ptrdiff_t i = 0; i < ROWS; i++) {
        const double loss = fp_log1p(rest[i] + (e_y[i] - 1.0)) - (z_y[i] - top[i]);
        value += W[i] > 0.0 ? W[i] * loss : 0.0;
        scale[i] = W[i] / (rest[i] + e_y[i]);
    }
    if (!G) return value;
    for (ptrdiff_t i = 0; i < ROWS; i++) E[(ptrdiff_t)Y[i] * ROWS + i] = 0.0 - rest[i];
    for (ptrdiff_t c = 0; c < m; c++) {
        FP_SIMD
        for (ptrdiff_t i = 0; i < ROWS; i++)
            E[c * ROWS + i] = W[i] > 0.0 ? E[c * ROWS + i] * scale[i] : 0.0;
    }
    transpose(E, m, ROWS, G);
    return value;
}

FP_INLINE double softmax(const double *Y, const double *O, const double *w, double *G,
                         ptrdiff_t n, ptrdiff_t m, double margin) {
    double value = 0.0;
    ptrdiff_t i = 0;
    for (; m <= SHORT && i + ROWS <= n; i += ROWS)
        value += softmax_block(Y + i, O + i * m, w ? w + i : NULL, G ? G + i * m : NULL, m, margin);
    for (; i < n; i++)
        value += softmax_row((ptrdiff_t)Y[i], O + i * m, weight_of(w, i), G ? G + i * m : NULL, m,
                             margin);
    return value;
}

static double multiclass_logistic(const double *Y, const double *O, const double *w, double *G,
                                  ptrdiff_t n, ptrdiff_t m) {
    return softmax(Y, O, w, G, n, m, 0.0);
}

static double smoothed_multiclass_hinge(const double *Y, const double *O, const double *w,
                                        double *G, ptrdiff_t n, ptrdiff_t m) {
    return softmax(Y, O, w, G, n, m, 1.0);
}

/* Multi-class squared hinge: with a_c = max(1 + o_c - o_y, 0), c != y, and a_y = 0
 *
 *     l(y, o) = sum_c a_c^2,     dl/do_c = 2 a_c, c != y;     dl/do_y = -2 sum_c a_c
 */

/* The outputs first .. last - 1 of one row: adds to the sums of a_c^2 and a_c. */
FP_INLINE void hinge_range(const double *FP_RESTRICT o, double o_y, double w, double *FP_RESTRICT g,
                           ptrdiff_t first, ptrdiff_t last, double *squares, double *sum) {
    double s2 = 0.0, s1 = 0.0;
    SIMD_SUM(s2, s1)
    for (ptrdiff_t c = first; c < last; c++) {
        const double margin = 1.0 + (o[c] - o_y);
        const double a = margin < 0.0 ? 0.0 : margin; /* NaN stays NaN */
        s2 += a * a;
        s1 += a;
        if (g) g[c] = 2.0 * w * a;
    }
    *squares += s2;
    *sum += s1;
}

static double multiclass_squared_hinge(const double *FP_RESTRICT Y, const double *FP_RESTRICT O,
                                       const double *FP_RESTRICT w, double *FP_RESTRICT G,
                                       ptrdiff_t n, ptrdiff_t m) {
    double value = 0.0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *o = O + i * m, wi = weight_of(w, i);
        double *g = G ? G + i * m : NULL;
        if (wi > 0.0) {
            const ptrdiff_t label = (ptrdiff_t)Y[i];
            double squares = 0.0, sum = 0.0;
            hinge_range(o, o[label], wi, g, 0, label, &squares, &sum);
            hinge_range(o, o[label], wi, g, label + 1, m, &squares, &sum);
            value += wi * squares;
            if (g) g[label] = 0.0 - 2.0 * wi * sum;
        } else if (g) {
            memset(g, 0, m * sizeof *g);
        }
    }
    return value;
}

/* Losses that are sums over the outputs, for y in {-1, +1} (all but the last) or real:
 *
 *     binary logistic          log(1 + exp(-y o))         -y / (1 + exp(y o))
 *     smoothed binary hinge    log(1 + exp(1 - y o))      -y / (1 + exp(y o - 1))
 *     binary squared hinge     max(1 - y o, 0)^2          -2 y max(1 - y o, 0)
 *     squared                  (o - y)^2 / 2              o - y
 */
enum kind { BINARY_LOGISTIC, SMOOTHED_BINARY_HINGE, BINARY_SQUARED_HINGE, SQUARED };

FP_INLINE int is_soft(enum kind kind) {
    return kind == BINARY_LOGISTIC || kind == SMOOTHED_BINARY_HINGE;
}

/* The two soft losses take the logarithm of 1 + exp(-z). */
FP_INLINE double soft_margin(enum kind kind, double y, double o) {
    return kind == BINARY_LOGISTIC ? y * o : y * o - 1.0;
}

enum { BLOCK = 1024 }; /* entries of a piece; their weights stay in the first-level cache */

/* One entry; `kind` is a constant wherever this is expanded. e = exp(-|z|), for the soft losses. */
FP_INLINE double entry(enum kind kind, double y, double o, double e, double *g) {
    if (is_soft(kind)) {
        const double z = soft_margin(kind, y, o);
        *g = -y * (z < 0.0 ? 1.0 : e) / (1.0 + e);
        return fp_log1p(e) + (z < 0.0 ? -z : 0.0);
    }
    if (kind == BINARY_SQUARED_HINGE) {
        const double margin = 1.0 - y * o, a = margin < 0.0 ? 0.0 : margin; /* NaN stays NaN */
        *g = -2.0 * y * a;
        return a * a;
    }
    *g = o - y;
    return 0.5 * *g * *g;
}

/* At most BLOCK entries of Y, O and G, seen as flat arrays, with a weight for every entry in W. */
FP_INLINE double piece(enum kind kind, const double *FP_RESTRICT Y, const double *FP_RESTRICT O,
                       const double *FP_RESTRICT W, double *FP_RESTRICT G, ptrdiff_t count,
                       int want_gradient) {
    double value = 0.0, E[BLOCK];
    if (is_soft(kind)) { /* a separate loop, because a fused one runs out of registers */
        FP_SIMD
        for (ptrdiff_t j = 0; j < count; j++) E[j] = fp_exp(-fabs(soft_margin(kind, Y[j], O[j])));
    }
    SIMD_SUM(value)
    for (ptrdiff_t j = 0; j < count; j++) {
        double g;
        const double loss = entry(kind, Y[j], O[j], is_soft(kind) ? E[j] : 0.0, &g);
        value += W[j] > 0.0 ? W[j] * loss : 0.0;
        if (want_gradient) G[j] = W[j] > 0.0 ? W[j] * g : 0.0;
    }
    return value;
}

FP_INLINE double sum_of_entries(enum kind kind, const double *Y, const double *O, const double *w,
                                double *G, ptrdiff_t n, ptrdiff_t m) {
    double value = 0.0, W[BLOCK];
    for (ptrdiff_t j = 0; j < BLOCK && j < n * m; j++) W[j] = 1.0;
    for (ptrdiff_t i = 0, rows; i < n; i += rows) {
        const ptrdiff_t width = m < BLOCK ? m : BLOCK, fit = BLOCK / width;
        rows = n - i < fit ? n - i : fit;
        for (ptrdiff_t r = 0; w && r < rows; r++)
            for (ptrdiff_t c = 0; c < width; c++) W[r * m + c] = w[i + r];
        for (ptrdiff_t j = i * m, end = (i + rows) * m; j < end; j += BLOCK) {
            const ptrdiff_t count = end - j < BLOCK ? end - j : BLOCK;
            value += G ? piece(kind, Y + j, O + j, W, G + j, count, 1)
                       : piece(kind, Y + j, O + j, W, NULL, count, 0);
        }
    }
    return value;
}

static double binary_logistic(const double *Y, const double *O, const double *w, double *G,
                              ptrdiff_t n, ptrdiff_t m) {
    return sum_of_entries(BINARY_LOGISTIC, Y, O, w, G, n, m);
}

static double smoothed_binary_hinge(const double *Y, const double *O, const double *w, double *G,
                                    ptrdiff_t n, ptrdiff_t m) {
    return sum_of_entries(SMOOTHED_BINARY_HINGE, Y, O, w, G, n, m);
}

static double binary_squared_hinge(const double *Y, const double *O, const double *w, double *G,
                                   ptrdiff_t n, ptrdiff_t m) {
    return sum_of_entries(BINARY_SQUARED_HINGE, Y, O, w, G, n, m);
}

static double squared(const double *Y, const double *O, const double *w, double *G, ptrdiff_t n,
                      ptrdiff_t m) {
    return sum_of_entries(SQUARED, Y, O, w, G, n, m);
}

/* Conjugates of one row, l*(y, u) with u times a scale. They are infinity outside of their domain,
 * apart from a small margin for rounding. */

static const double outside = 1e-12;

/* sum_c q_c log q_c - margin (1 - q_y) for q = u + e_y >= 0, sum_c u_c = 0. */
static double softmax_conjugate(const double *u, double scale, ptrdiff_t label, double margin,
                                ptrdiff_t m) {
    double total = 0.0, sum = 0.0, size = 0.0, negative = 0.0;
    SIMD_SUM(total, sum, size, negative)
    for (ptrdiff_t c = 0; c < m; c++) {
        const double q = scale * u[c];
        total += fp_x_log_x(q);
        sum += q;
        size += fabs(q);
        negative += q < -outside ? 1.0 : 0.0;
    }
    /* The label's own entry, u_y <= 0, has added nothing yet. */
    const double u_y = scale * u[label], q_y = 1.0 + u_y;
    if (u_y > 0.0) total -= fp_x_log_x(u_y);
    negative -= u_y < -outside ? 1.0 : 0.0;
    if (negative > 0.0 || q_y < -outside || !(fabs(sum) <= outside * (1.0 + size))) return INFINITY;
    return total + fp_x_log_x(q_y) - margin * (sum - u_y);
}

/* sum_c s log s + (1 - s) log(1 - s) - margin s, s = -y_c u_c in 0..1 */
static double binary_soft_conjugate(const double *y, const double *u, double scale, double margin,
                                    ptrdiff_t m) {
    double total = 0.0, bad = 0.0;
    SIMD_SUM(total, bad)
    for (ptrdiff_t c = 0; c < m; c++) {
        const double s = -y[c] * scale * u[c];
        total += fp_x_log_x(s) + fp_x_log_x(1.0 - s) - margin * s;
        bad += s >= -outside && s <= 1.0 + outside ? 0.0 : 1.0;
    }
    return bad > 0.0 ? INFINITY : total;
}

static int all_within(const double *x, ptrdiff_t n, double low, double high) {
    double outside = 0.0;
    SIMD_SUM(outside)
    for (ptrdiff_t i = 0; i < n; i++) outside += x[i] >= low && x[i] < high ? 0.0 : 1.0;
    return outside == 0.0;
}

const struct losses_loops FP_NAME(losses_loops) = {
    multiclass_logistic, smoothed_multiclass_hinge, multiclass_squared_hinge,
    binary_logistic,     smoothed_binary_hinge,     binary_squared_hinge,
    squared,             softmax_conjugate,         binary_soft_conjugate,
    all_within,
};
