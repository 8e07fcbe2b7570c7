# The inner loops of simd/gamma.h, for the modules that are built with them.
from fastpoly.kernels.rows cimport csr_rows

cdef extern from "simd/gamma.h":
    struct gamma_loops:
        void (*matvecs)(const csr_rows*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                        const double*, double*) noexcept nogil
        void (*pair_matvecs)(const csr_rows*, int, Py_ssize_t, Py_ssize_t, const double*,
                             Py_ssize_t, const double*, double*) noexcept nogil
        void (*diagonal)(const csr_rows*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                         double*) noexcept nogil
        void (*forms)(const csr_rows*, int, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                      const double*, double*) noexcept nogil
        void (*combine)(const csr_rows*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                        const double*, const double*, double*) noexcept nogil
        void (*pair_combine)(const csr_rows*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                             const double*, const double*, double*) noexcept nogil
        void (*dense_forms)(const double*, int, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                            const double*, double*) noexcept nogil
        void (*dense_combine)(const double*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                              const double*, const double*, double*) noexcept nogil
        void (*explicit_matvecs)(const double*, Py_ssize_t, Py_ssize_t, const double*,
                                 double*) noexcept nogil
        void (*products)(const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t,
                         Py_ssize_t, double*) noexcept nogil
        void (*orthogonalise)(const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, double*,
                              double*) noexcept nogil
        void (*column_dots)(const double*, const double*, Py_ssize_t, Py_ssize_t,
                            double*) noexcept nogil
        void (*add_multiple)(const double*, Py_ssize_t, double, double*) noexcept nogil
    const gamma_loops* choose_gamma_loops()
