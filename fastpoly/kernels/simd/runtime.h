/* The largest number of threads of OpenMP; without OpenMP, the value of its variable. */
#ifndef FP_RUNTIME_H
#define FP_RUNTIME_H

#include "isa.h"

#ifdef _OPENMP
#include <omp.h>
static inline int fp_max_threads(void) { return omp_get_max_threads(); }
#else
#include <stdlib.h>
static inline int fp_max_threads(void) {
    const char *wanted = getenv("OMP_NUM_THREADS");
    int number = wanted ? atoi(wanted) : 0;
    return number > 0 ? number : 1024;
}
#endif

#endif
