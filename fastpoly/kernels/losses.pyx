"""The losses, one class each: they turn one row of outputs o (m,) and its target y into a value.

Most have their own vectorized loops in ``simd/losses.c``, where their gradients are derived.
To add a loss, write one class with `name`, `target` and `row`, and list it in `LOSSES`.
"""

from libc.math cimport INFINITY, exp, fabs, log

from fastpoly.kernels.checks import HOW_TO_ENCODE, as_positive, encode_targets
from fastpoly.kernels.verbs import CompleteLoss

from fastpoly.kernels.loss cimport Loss, scale
from fastpoly.kernels.losses_loops cimport choose_losses_loops, fp_loss_rows, losses_loops

cdef const losses_loops* loops = choose_losses_loops()

globals()["Loss"] = Loss  # for `from fastpoly.kernels.losses import Loss`


cdef class _BuiltIn(Loss):
    """A loss with a loop in C, whose Hessian diagonal can be read off its gradient."""

    cdef fp_loss_rows loop(self) noexcept nogil:
        return NULL

    # In place: the gradient h (m,) of one row becomes the diagonal of its Hessian. That of the
    # logistic losses is p (1 - p), and their gradient is p, -p or p - 1.
    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = fabs(h[c]) * (1.0 - fabs(h[c]))

    cdef double row(
        self, const double* y, const double* o, double* g, Py_ssize_t m
    ) noexcept nogil:
        return self.loop()(y, o, NULL, g, 1, m)

    cdef double rows(
        self, const double* Y, const double* O, const double* w, double* G,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil:
        return self.loop()(Y, O, w, G, n, m)

    cdef void curvature_row(
        self, const double* y, const double* o, double* h, Py_ssize_t m
    ) noexcept nogil:
        self.row(y, o, h, m)
        self.hessian(y, h, m)

    cdef void curvature_rows(
        self, const double* Y, const double* O, const double* w, double* C,
        Py_ssize_t n, Py_ssize_t m, Py_ssize_t y_width
    ) noexcept nogil:
        cdef Py_ssize_t i
        self.rows(Y, O, NULL, C, n, m, y_width)
        for i in range(n):
            self.hessian(Y + i * y_width, C + i * m, m)
            if w != NULL:
                scale(C + i * m, w[i], m)


cdef bint adds_to_zero(const double* u, double scale, Py_ssize_t m) noexcept nogil:
    """Whether sum_c u_c = 0 within rounding; else o + t 1 makes u'o - l(y, o) unbounded."""
    cdef Py_ssize_t c
    cdef double total = 0.0, size = 0.0
    for c in range(m):
        total += u[c]
        size += fabs(u[c])
    return scale * fabs(total) <= 1e-12 * (1.0 + scale * size)


cdef void softmax_hessian(
    Py_ssize_t label, double* g, double* h, Py_ssize_t m
) noexcept nogil:
    """diag(p) - p p', packed, from the gradient g = p - e_y.

    1 - p_y is -g_y, which is exact to the last digit even where p_y rounds to 1. If the matrix lost
    its diagonal before the rest, it would not be positive semi-definite.
    """
    cdef Py_ssize_t c, e, k = 0
    cdef double missing = -g[label]
    g[label] += 1.0
    for c in range(m):
        for e in range(c, m):
            if e == c:
                h[k] = g[c] * (missing if c == label else 1.0 - g[c])
            else:
                h[k] = -g[c] * g[e]
            k += 1


cdef class _Multiclass(_BuiltIn):
    """A loss of class codes that depends only on the differences of the outputs."""

    target = "label"
    shift_invariant = True

    cdef bint reads_labels(self) noexcept nogil:
        return True


cdef class _Softmax(_Multiclass):
    """l(y, o) = log(1 + sum_{c != y} exp(margin + o_c - o_y))."""

    cdef double margin(self) noexcept nogil:
        return 0.0

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        return loops.softmax_conjugate(u, scale, <Py_ssize_t> y[0], self.margin(), m)

    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil:
        self.row(y, o, work, m)
        softmax_hessian(<Py_ssize_t> y[0], work, h, m)

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 0.5


cdef class MulticlassLogistic(_Softmax):
    """l(y, o) = log(1 + sum_{c != y} exp(o_c - o_y)), y a class code."""

    name = "multiclass_logistic"
    log_odds = True

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.multiclass_logistic


cdef class SmoothedMulticlassHinge(_Softmax):
    """l(y, o) = log(1 + sum_{c != y} exp(1 + o_c - o_y)), y a class code."""

    name = "smoothed_multiclass_hinge"

    cdef double margin(self) noexcept nogil:
        return 1.0

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.smoothed_multiclass_hinge


cdef class MulticlassSquaredHinge(_Multiclass):
    """l(y, o) = sum_{c != y} max(1 + o_c - o_y, 0)^2, y a class code."""

    name = "multiclass_squared_hinge"

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_{c != y} u_c^2 / 4 - u_c, for u_c >= 0
        cdef Py_ssize_t c
        cdef double total = 0.0, t
        if not adds_to_zero(u, scale, m):
            return INFINITY
        for c in range(m):
            if c != <Py_ssize_t> y[0]:
                t = scale * u[c]
                if t < -1e-12:
                    return INFINITY
                total += t * (0.25 * t - 1.0)
        return total

    cdef void hessian_row(
        self, const double* y, const double* o, double* h, double* work, Py_ssize_t m
    ) noexcept nogil:
        # sum over the active c != y of 2 (e_c - e_y)(e_c - e_y)'
        cdef Py_ssize_t c, e, p = 0, label = <Py_ssize_t> y[0]
        self.curvature_row(y, o, work, m)
        for c in range(m):
            for e in range(c, m):
                if e == c:
                    h[p] = work[c]
                elif c == label:
                    h[p] = -work[e]
                elif e == label:
                    h[p] = -work[c]
                else:
                    h[p] = 0.0
                p += 1

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.multiclass_squared_hinge

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 2.0 * m

    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c, active = 0, label = <Py_ssize_t> y[0]
        for c in range(m):
            active += c != label and h[c] > 0.0
            h[c] = 2.0 if h[c] > 0.0 else 0.0
        h[label] = 2.0 * active


cdef class _BinarySoft(_BuiltIn):
    """l(y, o) = sum_c log(1 + exp(margin - y_c o_c)), y_c in {-1, +1}."""

    target = "sign"

    cdef double margin(self) noexcept nogil:
        return 0.0

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        return loops.binary_soft_conjugate(y, u, scale, self.margin(), m)

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 0.25


cdef class BinaryLogistic(_BinarySoft):
    """l(y, o) = sum_c log(1 + exp(-y_c o_c)), y_c in {-1, +1}."""

    name = "binary_logistic"
    log_odds = True

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.binary_logistic


cdef class SmoothedBinaryHinge(_BinarySoft):
    """l(y, o) = sum_c log(1 + exp(1 - y_c o_c)), y_c in {-1, +1}."""

    name = "smoothed_binary_hinge"

    cdef double margin(self) noexcept nogil:
        return 1.0

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.smoothed_binary_hinge


cdef class BinarySquaredHinge(_BuiltIn):
    """l(y, o) = sum_c max(1 - y_c o_c, 0)^2, y_c in {-1, +1}."""

    name = "binary_squared_hinge"
    target = "sign"

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_c s^2 / 4 - s, s = -y_c u_c >= 0
        cdef Py_ssize_t c
        cdef double total = 0.0, s
        for c in range(m):
            s = -y[c] * scale * u[c]
            if s < -1e-12:
                return INFINITY
            total += s * (0.25 * s - 1.0)
        return total

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.binary_squared_hinge

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 2.0

    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = 2.0 if h[c] != 0.0 else 0.0


cdef class Squared(_BuiltIn):
    """l(y, o) = sum_c (o_c - y_c)^2 / 2, y_c real."""

    name = "squared"
    target = "real"
    equivariant = True

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        cdef double total = 0.0
        for c in range(m):
            total += scale * u[c] * (0.5 * scale * u[c] + y[c])
        return total

    cdef fp_loss_rows loop(self) noexcept nogil:
        return loops.squared

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 1.0

    cdef void hessian(self, const double* y, double* h, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = 1.0


cdef class Huber(Loss):
    """l(y, o) = sum_c g_c (o_c - y_c - g_c / 2), g_c = o_c - y_c clipped to -width .. width.

    That is (o_c - y_c)^2 / 2 up to a distance of `width`, and linear beyond it, so that no row
    counts for more than a distance of `width` does.

    Parameters
    ----------
    width : float, default=1.0
        In units of the targets. Regressors with standardize=True measure targets in units of their
        median absolute deviation.

    Examples
    --------
    >>> from fastpoly.kernels.losses import Huber
    >>> Huber().value_grad([[0.0, 0.0]], [[0.5, 10.0]])
    (9.625, array([[0.5, 1. ]]))
    """

    name = "huber"
    robust = True
    cdef readonly double width

    def __init__(self, width=1.0):
        self.width = as_positive(width, "width")

    cdef double row(
        self, const double* y, const double* o, double* g, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        cdef double r, t, value = 0.0
        for c in range(m):
            r = o[c] - y[c]
            t = self.width if r > self.width else -self.width if r < -self.width else r
            value += t * (r - 0.5 * t)
            if g != NULL:
                g[c] = t
        return value

    cdef double bound(self, Py_ssize_t m) noexcept nogil:
        return 1.0

    cdef void curvature_row(
        self, const double* y, const double* o, double* h, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = 1.0 if fabs(o[c] - y[c]) < self.width else 0.0

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_c u_c^2 / 2 + u_c y_c, |u_c| <= width
        cdef Py_ssize_t c
        cdef double t, total = 0.0
        for c in range(m):
            t = scale * u[c]
            if fabs(t) > self.width * (1.0 + 1e-12):
                return INFINITY
            total += t * (0.5 * t + y[c])
        return total

    def __reduce__(self):
        return type(self), (self.width,)

    def __eq__(self, other):
        return type(self) is type(other) and self.width == other.width

    def __hash__(self):
        return hash((type(self), self.width))

    def __repr__(self):
        return f"{type(self).__name__}(width={self.width:g})"


cdef double x_log_x(double x) noexcept nogil:
    return x * log(x) if x > 0.0 else 0.0


cdef class Poisson(Loss):
    """l(y, o) = sum_c exp(o_c) - y_c o_c + y_c log y_c - y_c, y_c >= 0; o_c is a log rate.

    It is 0 for a perfect fit, and half the Poisson deviance.
    """

    name = "poisson"
    link = "log"

    def encode(self, y, n_outputs=None):
        Y = encode_targets(self.target, y, n_outputs)
        if Y.size and Y.min() < 0:
            raise ValueError(
                f"y holds {Y.min():g}, but counts and rates are not negative; use another loss"
            )
        return Y

    cdef double row(
        self, const double* y, const double* o, double* g, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        cdef double rate, own, value = 0.0
        for c in range(m):
            rate = exp(o[c])
            own = rate - y[c] * o[c] + (x_log_x(y[c]) - y[c])
            if not own < 0:  # which rounding makes of a nearly perfect fit; NaN stays
                value += own
            if g != NULL:
                g[c] = rate - y[c]
        return value

    cdef void curvature_row(
        self, const double* y, const double* o, double* h, Py_ssize_t m
    ) noexcept nogil:
        cdef Py_ssize_t c
        for c in range(m):
            h[c] = exp(o[c])

    cdef double conjugate_row(
        self, const double* y, const double* u, double scale, Py_ssize_t m
    ) noexcept nogil:
        # sum_c s log s - s - (y_c log y_c - y_c), s = u_c + y_c >= 0
        cdef Py_ssize_t c
        cdef double s, total = 0.0
        for c in range(m):
            s = scale * u[c] + y[c]
            if s < -1e-12 * (1.0 + y[c]):
                return INFINITY
            total += (x_log_x(s) - s) - (x_log_x(y[c]) - y[c])
        return total


LOSSES = {
    loss.name: loss
    for loss in (
        MulticlassLogistic,
        SmoothedMulticlassHinge,
        MulticlassSquaredHinge,
        BinaryLogistic,
        SmoothedBinaryHinge,
        BinarySquaredHinge,
        Squared,
        Huber,
        Poisson,
    )
}


def get_loss(loss):
    """The loss for a name, or the loss itself, with all its methods.

    Parameters
    ----------
    loss : str or object
        A key of `LOSSES`, a `Loss`, or any object with these attributes and methods of `Loss`:

        - ``target``: "label", "sign" or "real",
        - ``value(Y, O, w=None)``, ``value_grad(Y, O, w=None)``,
        - ``smoothness(m)``: infinite if it is not known,
        - ``curvature(Y, O, w=None)``: optional; descents need fewer iterations with it,
        - ``hessian(Y, O, w=None)``: optional, for a loss with ``shift_invariant = True``,
        - ``conjugate(Y, U, scale=1.0, w=None)``: optional; it gives tight duality gaps,
        - ``encode(y, n_outputs=None)``: optional; checks targets in another way,
        - ``equivariant = True``: optional; a regressor may then rescale its targets,
        - ``robust = True``: optional; the same, with median and median absolute deviation,
        - ``link = "log"``: optional; regressors then predict exp(o),
        - ``log_odds = True``: optional; estimators then have ``predict_proba``.

        A Python class cannot replace methods of a compiled one.

    Returns
    -------
    Loss or object
        An object that lacks optional methods gets defaults for them; see `fastpoly.kernels.verbs`.

    Examples
    --------
    >>> from fastpoly.kernels.losses import get_loss
    >>> get_loss("squared")
    Squared()
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ValueError(f"unknown loss {loss!r}; the known ones are {sorted(LOSSES)}")
        return LOSSES[loss]()
    if isinstance(loss, Loss):
        return CompleteLoss.of(loss)
    if isinstance(loss, type):
        raise TypeError(f"loss must be an instance, got the class; write {loss.__name__}()")
    verbs = (getattr(loss, verb, None) for verb in ("value", "value_grad", "smoothness"))
    if not all(map(callable, verbs)) or getattr(loss, "target", None) not in HOW_TO_ENCODE:
        raise TypeError(
            f"loss must be a name in {sorted(LOSSES)}, a Loss, or an object with methods value, "
            f"value_grad, smoothness and a target in {list(HOW_TO_ENCODE)}; got {loss!r}"
        )
    return CompleteLoss.of(loss)


def complete_loss(loss):
    """`loss` with all verbs: its own, and defaults for the optional ones that it lacks.

    Examples
    --------
    >>> from fastpoly.kernels.losses import Squared, complete_loss
    >>> complete_loss(Squared())
    Squared()
    """
    return CompleteLoss.of(loss)
