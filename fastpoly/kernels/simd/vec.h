/* Four doubles that travel together: one AVX2 register, or two SSE2/NEON registers. */
#ifndef FP_VEC_H
#define FP_VEC_H

#include "isa.h"

typedef double vec __attribute__((vector_size(32)));
typedef double vec_in_memory __attribute__((vector_size(32), aligned(8), may_alias));

#define VEC_WIDTH 4

FP_INLINE vec vec_load(const double *p) { return *(const vec_in_memory *)p; }
FP_INLINE void vec_store(double *p, vec v) { *(vec_in_memory *)p = v; }
FP_INLINE vec vec_set(double x) { return (vec){x, x, x, x}; }
FP_INLINE double vec_sum(vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

#endif
