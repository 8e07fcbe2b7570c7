# The inner loops of simd/joint.h, for the modules that are built with them.
from fastpoly.kernels.rows cimport csr_rows

cdef extern from "simd/joint.h":
    struct pair_model:
        csr_rows X
        int anova
        Py_ssize_t k, m
        const double* Ht
        const double* Vt
        const double* b
        const double* W
        const double* C
    struct pair_sums:
        double* Gt
        double* GVt
        double* gb
        double* GW
        double* E
    struct joint_loops:
        void (*activate)(const double*, const double*, Py_ssize_t, double*) noexcept nogil
        void (*multiply)(double, const double*, Py_ssize_t, double*) noexcept nogil
        void (*fill_rows)(const double*, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*add_rows)(const double*, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*transpose)(const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t,
                          Py_ssize_t, double*) noexcept nogil
        void (*transpose_sums)(double, const double*, Py_ssize_t, int, Py_ssize_t, Py_ssize_t,
                               Py_ssize_t, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*pair_outputs)(const pair_model*, Py_ssize_t, Py_ssize_t, double*,
                             double*) noexcept nogil
        void (*pair_gradient)(const pair_model*, Py_ssize_t, Py_ssize_t, const double*, double*,
                              const pair_sums*) noexcept nogil
        void (*pair_squares)(const pair_model*, const double*, Py_ssize_t, Py_ssize_t,
                             double*) noexcept nogil
        void (*pair_squares_gradient)(const pair_model*, Py_ssize_t, Py_ssize_t,
                                      const pair_sums*) noexcept nogil
    const joint_loops* choose_joint_loops()
