# The inner loops of simd/joint.h, for the modules that are built with them.
from fastpoly.kernels.rows cimport csr_rows

cdef extern from "simd/joint.h":
    struct joint_loops:
        void (*activate)(const double*, const double*, Py_ssize_t, double*) noexcept nogil
        void (*multiply)(double, const double*, Py_ssize_t, double*) noexcept nogil
        void (*fill_rows)(const double*, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*add_rows)(const double*, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*transpose)(const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t,
                          Py_ssize_t, double*) noexcept nogil
        void (*transpose_sums)(double, const double*, Py_ssize_t, int, Py_ssize_t, Py_ssize_t,
                               Py_ssize_t, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
    const joint_loops* choose_joint_loops()
