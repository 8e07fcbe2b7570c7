# Part of penalties.pyx: arithmetic of one row, and views of checked arguments.

cdef extern from "simd/penalties.h" nogil:
    double max_abs "fp_max_abs"(const double* v, Py_ssize_t m)
    double sum_abs "fp_sum_abs"(const double* v, Py_ssize_t m)
    double sum_squares "fp_sum_squares"(const double* v, double scale, Py_ssize_t m)
    double sum_above "fp_sum_above"(const double* v, double s, Py_ssize_t m, double* count)
    double soft_threshold "fp_soft_threshold"(double* v, double t, Py_ssize_t m)


cdef inline Py_ssize_t argmax_abs(const double* v, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t best = 0, c
    for c in range(1, m):
        if fabs(v[c]) > fabs(v[best]):
            best = c
    return best


cdef inline double clip(double x, double bound) noexcept nogil:
    return bound if x > bound else (-bound if x < -bound else x)


cdef inline double sign(double x) noexcept nogil:
    return <double>(x > 0) - <double>(x < 0)


cdef double fill_nan(double* v, Py_ssize_t m) noexcept nogil:
    cdef Py_ssize_t c
    for c in range(m):
        v[c] = NAN
    return NAN


cdef double norm2(const double* v, Py_ssize_t m) noexcept nogil:
    cdef double top, total = sum_squares(v, 1, m)
    if 1e-280 < total < 1e300 or total != total:
        return sqrt(total)
    # The squares left the range of doubles (or v = 0): scale by the largest entry.
    top = max_abs(v, m)
    return top * sqrt(sum_squares(v, top, m)) if top > 0 else 0


cdef double level(const double* v, double t, Py_ssize_t m) noexcept nogil:
    """The s >= 0 with sum_c max(|v_c| - s, 0) = t, or 0 when t >= |v|_1.

    The sum is convex, decreasing and piecewise linear in s, so Newton steps from the left of the
    root only go right and end on it. This needs no sort and no workspace. Both starts are lower
    bounds on s.
    """
    cdef double total = sum_abs(v, m), top, s, step, count, last = -1
    if total <= t:
        return 0
    top = max_abs(v, m)
    s = (total - t) / m
    s = top - t if top - t > s else s
    while True:
        step = sum_above(v, s, m, &count) - t
        if not (step > 0 and count > 0):
            break
        s += step / count
        if count == last:  # the same linear piece twice: only rounding errors remain
            break
        last = count
    return s if s < top else top


cdef inline double weight(const double* b, Py_ssize_t r) noexcept nogil:
    return b[r] if b != NULL else 1


cdef inline double threshold(
    double theta, const double* b, const double* s, Py_ssize_t r
) noexcept nogil:
    cdef double a = weight(b, r) * weight(s, r)
    return theta * a if a > 0 else 0


# ---- arguments ----------------------------------------------------------------------------------

cdef const double* first(const double[:, ::1] a) noexcept nogil:
    return &a[0, 0] if a.shape[0] > 0 and a.shape[1] > 0 else NULL


cdef double* first_out(double[:, ::1] a) noexcept nogil:
    return &a[0, 0] if a.shape[0] > 0 and a.shape[1] > 0 else NULL


cdef const double* first_of(const double[::1] a) noexcept nogil:
    return &a[0] if a is not None and a.shape[0] > 0 else NULL


cdef const double[:, ::1] matrix(object a, str name, Py_ssize_t k=-1, Py_ssize_t m=-1):
    """A float64 view of shape (k, m); -1: any length."""
    cdef const double[:, ::1] view = None
    try:
        view = a
    except (TypeError, ValueError, BufferError):
        pass
    if view is None or (k >= 0 and view.shape[0] != k) or (m >= 0 and view.shape[1] != m):
        shape = (None if k < 0 else k, None if m < 0 else m)
        view = as_float_array(a, name, shape, finite=False)
    return view


cdef const double[::1] vector(object a, str name, Py_ssize_t k):
    cdef const double[::1] view = None
    try:
        view = a
    except (TypeError, ValueError, BufferError):
        pass
    if view is None or view.shape[0] != k:
        view = as_float_array(a, name, (k,), finite=False)
    return view


cdef object positive_rows(object a, str name, Py_ssize_t k):
    if a is None:
        return None
    a = as_float_array(a, name, (k,))
    if k and not a.min() > 0:
        raise ValueError(f"{name} must be positive, got a minimum of {a.min()}")
    return a
