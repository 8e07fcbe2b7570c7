from libc.string cimport memset

# A Loss turns one row of outputs o (m,) and its target y into a value and a gradient.
# It never sees X. To subclass it from another package, cimport this file; only `row` is needed.
#
# Targets are float64: y holds one class code 0 .. m - 1 (`target = "label"`), m signs -1 or +1
# ("sign"), or m numbers ("real"). Callers have checked the codes: see `Loss.check_targets`.

cdef class Loss:
    # Value l(y, o); writes the gradient d l / d o to g (m,) unless g is NULL.
    cdef double row(
        self, const double* y, const double* o, double* g, Py_ssize_t m
    ) noexcept nogil
    # Bound on the operator norm of the Hessian for m outputs; infinity (the default) if not known.
    cdef double bound(self, Py_ssize_t m) noexcept nogil
    # Writes the diagonal of the Hessian at o, or an upper bound (the default: `bound`), to h (m,).
    cdef void curvature_row(
        self, const double* y, const double* o, double* h, Py_ssize_t m
    ) noexcept nogil
    # Upper triangle of the Hessian at o, packed row by row, to h (m (m + 1) / 2,); `work` (m,). The
    # default is the diagonal of `curvature_row`: outputs that do not interact.
    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil
    # The conjugate l*(y, scale u) = max_o scale u'o - l(y, o); NaN (the default) if not known.
    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil
    # sum_i w_i l(y_i, o_i) over a block of n rows (C order, Y has y_width columns); w_i times the
    # gradients go to G (n, m) unless it is NULL; w may be NULL (all ones). Rows of weight 0 count
    # for nothing, whatever they hold. Calls `row` unless a subclass has something faster.
    cdef double rows(
        self, const double* Y, const double* O, const double* w, double* G,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil
    # The same shape of loop for `curvature_row`, weighted by w.
    cdef void curvature_rows(
        self, const double* Y, const double* O, const double* w, double* C,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil
    # Whether `row` uses y[0] as an index into o. If so, or if `target` says so, codes are checked.
    cdef bint reads_labels(self) noexcept nogil
    # Y as a checked (n, 1 or m) float64 view; raises for wrong shapes and codes outside 0 .. m - 1.
    cdef const double[:, ::1] targets(self, object Y, Py_ssize_t n, Py_ssize_t m)


# A float64 view of shape (n, m), at no cost when `a` is one already; -1: any length.
cdef const double[:, ::1] matrix(object a, str name, Py_ssize_t n, Py_ssize_t m)


# row *= weight, exactly 0 for weight 0 whatever the row holds.
cdef inline void scale(double* row, double weight, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t c
    if weight > 0.0:
        for c in range(m):
            row[c] *= weight
    else:
        memset(row, 0, m * sizeof(double))
