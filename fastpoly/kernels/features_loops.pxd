# The inner loops of simd/features.h, for the modules that are built with them.
from fastpoly.kernels.rows cimport csr_rows

cdef extern from "simd/features.h":
    struct features_loops:
        void (*activations)(const csr_rows*, int, Py_ssize_t, Py_ssize_t, const double*,
                            Py_ssize_t, double*) noexcept nogil
        void (*basis_grad)(const csr_rows*, int, Py_ssize_t, Py_ssize_t, const double*,
                           Py_ssize_t, const double*, double*) noexcept nogil
        void (*linear)(const csr_rows*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                       double*) noexcept nogil
        void (*linear_grad)(const csr_rows*, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
                            double*) noexcept nogil
        void (*basis_curvature)(const csr_rows*, int, Py_ssize_t, Py_ssize_t, const double*,
                                Py_ssize_t, const double*, double*) noexcept nogil
    const features_loops* choose_features_loops()
