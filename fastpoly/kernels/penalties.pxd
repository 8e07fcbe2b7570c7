# A Penalty is Omega(V) = sum_r weight_r ||v_r|| for a norm ||.|| on rows (m,). It never sees the
# solver. To subclass it from another package, cimport this file; the `row_*` methods are needed.

# The result of one FISTA step; see `fista_update` for the formulas.
cdef struct FistaSums:
    double linear
    double quadratic
    double restart


cdef class Penalty:
    # ||v||
    cdef double row_norm(self, const double* v, Py_ssize_t m) noexcept nogil
    # ||g||_* = max {g'v : ||v|| <= 1}
    cdef double row_dual(self, const double* g, Py_ssize_t m) noexcept nogil
    # Writes a maximizer of g'v to v (m,); zeros when g = 0.
    cdef void row_polar(self, const double* g, double* v, Py_ssize_t m) noexcept nogil
    # In place v <- prox_t(v) = argmin_u 1/2 |u - v|^2 + t ||u||, t >= 0; returns ||prox_t(v)||.
    cdef double row_prox(self, double* v, double t, Py_ssize_t m) noexcept nogil
    # ||prox_t(v)|| without forming it, and its right derivative with respect to t, t >= 0. It must
    # be convex and decreasing in t: `project_rows` finds its multiplier by Newton steps on it.
    cdef double row_shrunk(
        self, const double* v, double t, Py_ssize_t m, double* slope
    ) noexcept nogil
    # Smooth selection criterion f_p(q) of a gradient row q (m,); writes df_p/dq to w (m,).
    cdef double row_criterion(self, const double* q, double* w, Py_ssize_t m) noexcept nogil

    # sum_r b_r ||v_r|| for V (k, m) in C order; b may be NULL (all ones).
    cdef double sum_rows(
        self, const double* V, const double* b, Py_ssize_t k, Py_ssize_t m
    ) noexcept nogil
    # In place V <- argmin_U sum_r |u_r - v_r|^2 / (2 s_r)  s.t.  sum_r b_r ||u_r|| <= tau; returns
    # that sum at the result. b and s may be NULL (all ones); a row with b_r = 0 is left alone.
    # Calls `row_shrunk` unless a subclass has something faster.
    cdef double project_rows(
        self, double* V, double tau, const double* b, const double* s, Py_ssize_t k, Py_ssize_t m
    ) noexcept nogil


# The kernel of `fista_update`: thresholds t (k,), or t = NULL and the ball of radius tau.
# b, of the ball, may be NULL (all ones). V_new must not overlap the other matrices.
cdef FistaSums fista_rows(
    Penalty penalty, const double* Y, const double* G, const double* s, const double* V_old,
    double* V_new, const double* t, double tau, const double* b, Py_ssize_t k, Py_ssize_t m
) noexcept nogil
