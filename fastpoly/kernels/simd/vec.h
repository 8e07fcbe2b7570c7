/* Four doubles that are handled together: one AVX2 register, or two SSE2/NEON registers. */
#ifndef FP_VEC_H
#define FP_VEC_H

#include "isa.h"

typedef double vec __attribute__((vector_size(32)));
typedef double vec_in_memory __attribute__((vector_size(32), aligned(8), may_alias));

#define VEC_WIDTH 4

FP_INLINE vec vec_load(const double *p) { return *(const vec_in_memory *)p; }
FP_INLINE void vec_store(double *p, vec v) { *(vec_in_memory *)p = v; }
FP_INLINE vec vec_set(double x) { return (vec){x, x, x, x}; }
/* Lanes a, b, c, e of the eight lanes of (x, y), with the builtin of the compiler. */
#if defined(__clang__) || __GNUC__ >= 12
#define VEC_LANES(x, y, a, b, c, e) __builtin_shufflevector(x, y, a, b, c, e)
#else
typedef int64_t vec_lanes __attribute__((vector_size(32)));
#define VEC_LANES(x, y, a, b, c, e) __builtin_shuffle(x, y, (vec_lanes){a, b, c, e})
#endif

/* to[c] = (from[0][c], .., from[3][c]): four rows become four columns. */
FP_INLINE void vec_transpose(const vec from[4], vec to[4]) {
    const vec even_01 = VEC_LANES(from[0], from[1], 0, 4, 2, 6);
    const vec odd_01 = VEC_LANES(from[0], from[1], 1, 5, 3, 7);
    const vec even_23 = VEC_LANES(from[2], from[3], 0, 4, 2, 6);
    const vec odd_23 = VEC_LANES(from[2], from[3], 1, 5, 3, 7);
    to[0] = VEC_LANES(even_01, even_23, 0, 1, 4, 5);
    to[1] = VEC_LANES(odd_01, odd_23, 0, 1, 4, 5);
    to[2] = VEC_LANES(even_01, even_23, 2, 3, 6, 7);
    to[3] = VEC_LANES(odd_01, odd_23, 2, 3, 6, 7);
}

FP_INLINE double vec_sum(vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

#endif
