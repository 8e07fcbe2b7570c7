# Gamma_c, c < m: m symmetric d x d operators that are applied together.
# To subclass Gamma from another package, cimport this file, call `_set_shape` once and define
# `apply`. Add the `work` that `apply` itself needs to Gamma.work_size(), whose blocks come first
# and belong to the other methods.
from fastpoly.kernels.matrix cimport Matrix


cdef class Gamma:
    cdef readonly Py_ssize_t d       # size of the operators
    cdef readonly Py_ssize_t m       # number of operators
    cdef readonly Py_ssize_t width   # m rounded up to a multiple of 4: columns of a block
    cdef int _set_shape(self, Py_ssize_t d, Py_ssize_t m) except -1
    cdef int _check_made(self) except -1
    # out_:c = Gamma_c B_:c for all c; blocks (d, width), C order, padded columns of B zero.
    # `work` has work_size() doubles. Several threads may call it at once with their own work.
    cdef void apply(self, const double* B, double* out, double* work) noexcept nogil
    cdef Py_ssize_t work_size(self) noexcept nogil
    # q_c = h' Gamma_c h, (width,)
    cdef void forms_into(self, const double* h, double* q, double* work) noexcept nogil
    # out = sum_c w_c Gamma_c h, (d,); w (width,) padded with zeros
    cdef void combine_into(
        self, const double* w, const double* h, double* out, double* work
    ) noexcept nogil
    # `apply` for a caller that holds the GIL; operators that may raise override this one.
    cdef int apply_checked(self, const double* B, double* out, double* work) except -1


cdef class RowGamma(Gamma):
    cdef readonly Matrix X
    cdef readonly bint anova
    cdef readonly int n_threads
    cdef int n_shares                # shares of a pass; each has its own sums
    cdef const double[:, ::1] D
    cdef double[:, ::1] diagonal     # (d, width), empty if nothing has to be subtracted
    cdef double seconds(self) noexcept
    cdef int prepare(self) except -1
    cdef void run(
        self, int verb, const double* w, const double* b, double* out, Py_ssize_t size,
        double* work
    ) noexcept nogil
    cdef void share(
        self, int verb, int share, int worker, const double* w, const double* b, double* out,
        Py_ssize_t size, double* work
    ) noexcept nogil
    cdef void finish(self, const double* B, double* out) noexcept nogil
    cdef void add_rows(
        self, Py_ssize_t first, Py_ssize_t last, const double* B, double* out, double* work
    ) noexcept nogil
    cdef Py_ssize_t row_work(self) noexcept nogil
    cdef void add_forms(
        self, Py_ssize_t first, Py_ssize_t last, const double* h, double* q, double* work
    ) noexcept nogil
    cdef void add_combine(
        self, Py_ssize_t first, Py_ssize_t last, const double* w, const double* h, double* out,
        double* work
    ) noexcept nogil


cdef class CsrGamma(RowGamma):
    pass


cdef class DenseGamma(RowGamma):
    cdef Py_ssize_t block
