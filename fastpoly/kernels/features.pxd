# Activations, computed one block of rows at a time.
from fastpoly.kernels.matrix cimport Matrix


# A method over all rows: what its threads read and write.
cdef struct features_pass:
    void* features                        # Features
    int verb
    int n_shares
    double* O                             # (n, m)
    const double* D                       # (n, m)
    const double* V                       # (k, m), or NULL
    Py_ssize_t m
    double* sums                          # one slot per share
    Py_ssize_t slot
    double* buffers                       # one per worker
    Py_ssize_t buffer


cdef class Features:
    cdef readonly Matrix X
    cdef readonly bint anova
    cdef readonly object H                # (k, d)
    cdef readonly Py_ssize_t n, k
    cdef readonly int n_threads           # largest number; short passes use fewer
    cdef double seconds                   # about how long one thread takes for all activations
    cdef readonly Py_ssize_t block        # rows per call
    # Activations of rows first..last-1, at most `block` of them, to S (rows, k). `buffer` has
    # buffer_size() doubles and may be S.
    cdef void fill(
        self, Py_ssize_t first, Py_ssize_t last, double* S, double* buffer
    ) noexcept nogil
    cdef double product_seconds(self, Py_ssize_t m) noexcept nogil
    cdef int _outputs(self, double[:, ::1] O, const double[:, ::1] V) except -1
    cdef object _run(self, features_pass* p, Py_ssize_t size, double seconds)
    cdef void add_outputs(
        self, Py_ssize_t first, Py_ssize_t last, double* O, const double* V, Py_ssize_t m,
        double* buffer
    ) noexcept nogil
    cdef void add_pullback(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, Py_ssize_t m, double* G,
        double* buffer
    ) noexcept nogil
    cdef Py_ssize_t buffer_size(self) noexcept nogil
    cdef double prepare(self) except -1
    cdef Py_ssize_t scratch_size(self) noexcept nogil
    cdef Py_ssize_t grad_size(self) noexcept nogil
    cdef object _basis_grad(self, const double[:, ::1] D, const double[:, ::1] V)
    cdef void add_basis_grad(
        self, Py_ssize_t first, Py_ssize_t last, const double* M, double* G, double* buffer
    ) noexcept nogil
    cdef void add_gradients(
        self, Py_ssize_t first, Py_ssize_t last, const double* D, const double* V, Py_ssize_t m,
        double* G, double* buffer
    ) noexcept nogil


cdef class CsrFeatures(Features):
    cdef double[:, ::1] Ht                # (d, k padded)


cdef class DenseFeatures(Features):
    cdef const double[:, ::1] H_rows      # (k, d)
    cdef const double[:, ::1] H_squares   # (k, d)
