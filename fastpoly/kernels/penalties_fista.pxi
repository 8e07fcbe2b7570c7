# Part of penalties.pyx: the fused FISTA step.

cdef extern from "simd/penalties.h" nogil:
    void gradient_step "fp_step"(
        const double* y, const double* g, double s, double* v, Py_ssize_t m)
    void products "fp_products"(
        const double* y, const double* g, const double* old, const double* v, Py_ssize_t m,
        double* sums)


FistaStep = namedtuple(
    "FistaStep", "linear quadratic restart", module="fastpoly.kernels.penalties"
)


cdef FistaSums fista_rows(
    Penalty penalty, const double* Y, const double* G, const double* s, const double* V_old,
    double* V_new, const double* t, double tau, const double* b, Py_ssize_t k, Py_ssize_t m
) noexcept nogil:
    cdef FistaSums sums
    cdef double row[3]
    cdef Py_ssize_t r, i
    memset(&sums, 0, sizeof(FistaSums))
    if t == NULL:
        for r in range(k):
            gradient_step(Y + r * m, G + r * m, s[r], V_new + r * m, m)
        penalty.project_rows(V_new, tau, b, s, k, m)
    for r in range(k):
        i = r * m
        if t != NULL:
            gradient_step(Y + i, G + i, s[r], V_new + i, m)
            penalty.row_prox(V_new + i, t[r], m)
        products(Y + i, G + i, V_old + i, V_new + i, m, row)
        sums.linear += row[0]
        sums.quadratic += row[1] / s[r]
        sums.restart += row[2] / s[r]
    return sums


def fista_update(penalty, Y, G, steps, V_old, V_new, *, thresholds=None, tau=None, weights=None):
    """One accelerated proximal gradient step from Y, and the sums that the solver needs.

    Writes ``V_new = argmin_U <G, U> + sum_r |u_r - y_r|^2 / (2 steps_r) + penalty`` with the penalty
    ``sum_r thresholds_r / steps_r ||u_r||`` or the constraint ``sum_r weights_r ||u_r|| <= tau``.
    The NumPy form, with S = steps[:, None]::

        V_new = prox(Y - S * G, thresholds)      # or the projection with metric 1 / steps
        step, move = V_new - Y, V_new - V_old

    Parameters
    ----------
    penalty : Penalty or object with its methods (then this runs in NumPy)
    Y, G : ndarray of shape (k, m)
        The extrapolated point and the gradient there. Entries are not checked to be finite, because
        this runs in the inner loop; NaN or infinity shows in the sums.
    steps : ndarray of shape (k,)
        Positive step sizes.
    V_old : ndarray of shape (k, m)
        The previous iterate.
    V_new : ndarray of shape (k, m)
        Memory for the result; must not share memory with the other matrices.
    thresholds : ndarray of shape (k,), optional
        ``steps_r * alpha * weights_r >= 0``, for the penalized form. Give this or `tau`.
    tau : float, optional
        Radius of the ball, for the constrained form.
    weights : ndarray of shape (k,), optional
        Weights of the ball, None for ones; 0 leaves a row free. Only with `tau`.

    Returns
    -------
    FistaStep
        ``linear = <G, step>`` and ``quadratic = sum(step**2 / S)``: the step is short enough when
        loss(V_new) <= loss(Y) + linear + quadratic / 2. ``restart = -sum(step * move / S)``: positive
        when the momentum should restart.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import fista_update, get_penalty
    >>> Y = V_old = np.zeros((1, 2))
    >>> G, V_new = np.array([[-3.0, 1.0]]), np.empty((1, 2))
    >>> ones = np.ones(1)
    >>> sums = fista_update(get_penalty("l1"), Y, G, ones, V_old, V_new, thresholds=ones)
    >>> V_new, sums.linear, sums.quadratic
    (array([[2., 0.]]), -6.0, 4.0)
    """
    cdef double[:, ::1] new = None
    try:
        new = V_new
    except (TypeError, ValueError, BufferError):
        pass
    if new is None:
        new = as_output(V_new if V_new is not None else (), "V_new", np.shape(Y))
    cdef Py_ssize_t k = new.shape[0], m = new.shape[1], r
    cdef const double[:, ::1] y = matrix(Y, "Y", k, m), g = matrix(G, "G", k, m)
    cdef const double[:, ::1] old = matrix(V_old, "V_old", k, m)
    cdef const double[::1] s = vector(steps, "steps", k), t = None, b = None
    cdef double radius = 0
    cdef bint bad = False
    cdef FistaSums sums
    if (thresholds is None) == (tau is None):
        raise ValueError("give either thresholds (penalized) or tau (constrained)")
    if tau is None and weights is not None:
        raise ValueError("weights are those of the ball: give them with tau only")
    if tau is None:
        t = vector(thresholds, "thresholds", k)
    else:
        radius = as_positive(tau, "tau")
    if weights is not None:
        b = vector(weights, "weights", k)
    for r in range(k):
        bad |= not s[r] > 0 or (t is not None and not t[r] >= 0) or (b is not None and not b[r] >= 0)
    if bad:
        raise ValueError("steps must be > 0, thresholds and weights >= 0")
    if (
        overlap(first(new), k * m, first(y), k * m)
        or overlap(first(new), k * m, first(g), k * m)
        or overlap(first(new), k * m, first(old), k * m)
    ):
        raise ValueError("V_new must not share memory with Y, G or V_old")
    if not isinstance(penalty, Penalty):
        return numpy_update(penalty, *map(np.asarray, (y, g, s, old, new)), t, tau, b)
    cdef Penalty kernel = penalty
    with nogil:
        sums = fista_rows(
            kernel, first(y), first(g), first_of(s), first(old), first_out(new),
            first_of(t), radius, first_of(b), k, m
        )
    return FistaStep(sums.linear, sums.quadratic, sums.restart)


def numpy_update(penalty, Y, G, steps, V_old, V_new, thresholds, tau, weights):
    """`fista_update` with the whole-matrix methods of any object; rows of weight 0 are free."""
    S = steps[:, None]
    V_new[...] = Y - S * G
    if tau is None:
        rows = np.asarray(thresholds) > 0
        V_new[rows] = penalty.prox(V_new[rows], 1.0, weights=np.asarray(thresholds)[rows])
    else:
        weights = np.ones(len(steps)) if weights is None else np.asarray(weights)
        rows = weights > 0
        V_new[rows] = penalty.project(
            V_new[rows], tau, weights=weights[rows], metric=1 / steps[rows]
        )
    step, move = V_new - Y, V_new - V_old
    sums = (np.sum(G * step), np.sum(step**2 / S), -np.sum(step * move / S))
    return FistaStep(*map(float, sums))
