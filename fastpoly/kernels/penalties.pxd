# A Penalty is Omega(V) = sum_r weight_r ||v_r|| for a norm ||.|| on rows (m,). It never sees the
# solver. Subclass it from another package by cimporting this file.

cdef class Penalty:
    # ||v||
    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil
    # ||g||_* = max {g'v : ||v|| <= 1}
    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil
    # In place v <- argmin_u 1/2 |u - v|^2 + t ||u||; returns ||u||.
    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil
    # ||prox_t(v)|| without forming it, and its (right) derivative with respect to t: a convex,
    # piecewise linear function of t, whose root gives the projection on a ball.
    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil
    # Smooth selection criterion f_p(q) of a gradient row q (m,); writes df_p/dq to w (m,).
    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil
