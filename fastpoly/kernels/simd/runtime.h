/* How many threads OpenMP would use, with or without OpenMP. */
#ifndef FP_RUNTIME_H
#define FP_RUNTIME_H

#include "isa.h"

#ifdef _OPENMP
#include <omp.h>
static inline int fp_max_threads(void) { return omp_get_max_threads(); }
static inline int fp_have_openmp(void) { return 1; }
#else
static inline int fp_max_threads(void) { return 1; }
static inline int fp_have_openmp(void) { return 0; }
#endif

#endif
