/* One C file of inner loops, compiled once per instruction set.
 *
 * A file `name.c` ends with one table of its functions,
 *     const struct name_loops FP_NAME(name_loops) = {...};
 * and `name.h` ends with FP_CHOOSE(name_loops), which declares both tables and defines
 *     const struct name_loops *choose_name_loops(void),
 * called once when the module is imported. FASTPOLY_SIMD=baseline forces the portable table.
 */
#ifndef FP_ISA_H
#define FP_ISA_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FP_CAT_(a, b) a##_##b
#define FP_CAT(a, b) FP_CAT_(a, b)
#define FP_NAME(name) FP_CAT(name, FP_ISA)

#define FP_INLINE static inline __attribute__((always_inline))
#define FP_RESTRICT restrict
#define FP_PRAGMA(x) _Pragma(#x)
#define FP_SIMD FP_PRAGMA(omp simd)

/* Index checks in a build with -Dbounds_checks=true; nothing otherwise. */
#ifdef FP_BOUNDS_CHECKS
#include <stdio.h>
#define FP_CHECK(condition)                                                                \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: out of bounds: %s\n", __FILE__, __LINE__, #condition);  \
            abort();                                                                       \
        }                                                                                  \
    } while (0)
#else
#define FP_CHECK(condition) ((void)0)
#endif

/* 1 when the AVX2 + FMA loops may run on this processor. */
static inline int fp_use_avx2(void) {
#ifdef FP_HAVE_AVX2
    const char *forced = getenv("FASTPOLY_SIMD");
    if (forced && strcmp(forced, "baseline") == 0) return 0;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}

#ifdef FP_HAVE_AVX2
#define FP_CHOOSE(table)                                                                   \
    extern const struct table FP_CAT(table, baseline), FP_CAT(table, avx2);                \
    static inline const struct table *FP_CAT(choose, table)(void) {                        \
        return fp_use_avx2() ? &FP_CAT(table, avx2) : &FP_CAT(table, baseline);            \
    }
#else
#define FP_CHOOSE(table)                                                                   \
    extern const struct table FP_CAT(table, baseline);                                     \
    static inline const struct table *FP_CAT(choose, table)(void) {                        \
        return &FP_CAT(table, baseline);                                                   \
    }
#endif

#endif
