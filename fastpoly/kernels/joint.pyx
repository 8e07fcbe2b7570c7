"""The smooth part of the joint descent over H and V, in one pass over blocks of rows:

    F(H, V, b, W) = sum_i w_i l(y_i, o_i),    o_i = V's(H x_i) + b + W'x_i

    s_r = (h_r'x)^2                                  squared
    s_r = 1/2 ((h_r'x)^2 - (h_r*h_r)'(x*x))          anova

X (n, d), H (k, d), V (k, m), b (m,), W (d, m); b and W only with `linear`. In NumPy:

    Z = X @ H.T                                      Q = X**2 @ (H**2).T
    S = Z**2                                         S = (Z**2 - Q) / 2
    O = S @ V + b + X @ W
    value, D = loss.value_grad(Y, O, w)
    GV, gb, GW, M = S.T @ D, D.sum(0), X.T @ D, D @ V.T
    GH = 2 * (M * Z).T @ X                           GH = (M * Z).T @ X - (M.T @ X**2) * H

A block of rows goes through all of it while it is in cache, so no array of n x k numbers exists.
`joint_rows.pyx` knows how rows are stored. A pass is cut into fixed shares of the rows. Each has
its own sums, which are added in order, so the bits depend only on the number of threads.
"""

from collections import namedtuple

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uintptr_t
from libc.string cimport memset

from fastpoly.kernels.joint_rows cimport JointRows, make_joint_rows
from fastpoly.kernels.loss cimport Loss
from fastpoly.kernels.matrix cimport Matrix
from fastpoly.kernels.memory cimport APART, LINE, overlap, whole_lines
from fastpoly.kernels.runtime cimport (
    RANGE_SECONDS, effective_n_threads, flop_seconds, run_shares, shares_for, threads_for,
)

from fastpoly.kernels.checks import as_float_array, as_n_outputs, as_output, as_weights
from fastpoly.kernels.features import ACTIVATIONS, make_features
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.verbs import CompleteLoss, loss_curvature

include "joint_pass.pxi"


Curvature = namedtuple("Curvature", ["basis", "output", "intercept", "linear"], module=__name__)
Curvature.__doc__ = """Sums over rows for a preconditioner of the joint descent.

With C (n, m) the weighted second derivatives of the loss, Z = X @ H.T and U = C @ (V**2).T:

    basis (k, d)      4 (U * Z**2).T @ X**2, or sum_i u_ir x_ij^2 (z_ir - x_ij h_rj)^2 for anova
    output (k, k)     S.T @ (C.mean(1)[:, None] * S)
    intercept (m,)    C.sum(0)             None without linear terms
    linear (d, m)     (X**2).T @ C         None without linear terms
"""


cdef class JointObjective(JointPass):
    """F over H, V and the linear terms: data, loss, targets and weights.

    Parameters
    ----------
    X : Matrix, (n, d)
    loss : Loss or object with `value_grad(Y, O, w)`
        A loss written in Python sees all rows at once, so its pass is not fused.
    Y : ndarray, (n, 1 or m)
        Targets as `loss.encode` returns them.
    n_outputs : int
    w : array-like, (n,), optional
        Sample weights.
    activation : {"squared", "anova"}
    linear : bool
        Whether the model has an intercept and linear terms in addition to the network.
    n_threads : int or None
        Largest number of threads; short passes use one.
    levels : ndarray of uint8, (n,), optional
        Then Y holds the targets of every level, (n_levels, 1 or m), and row i has Y[levels[i]].
    spare : list, optional
        Memory of earlier passes for reuse; objectives of the same problem may share it.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.joint import JointObjective
    >>> from fastpoly.kernels.losses import get_loss
    >>> from fastpoly.kernels.matrix import as_matrix
    >>> X, Y = as_matrix([[1.0, 2.0], [3.0, 0.0]]), np.array([[5.0], [9.0]])
    >>> objective = JointObjective(X, get_loss("squared"), Y, 1)
    >>> value, GH, GV, _, _ = objective.value_grad([[1.0, 1.0]], [[1.0]])
    >>> value, GH, GV
    (8.0, array([[24., 48.]]), array([[36.]]))
    """

    def __init__(self, Matrix X not None, loss, Y, Py_ssize_t n_outputs, w=None, *,
                 activation="squared", bint linear=False, n_threads=1, levels=None, spare=None):
        if self.rows is not None:
            raise TypeError("a JointObjective cannot be made a second time")
        as_n_outputs(n_outputs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {ACTIVATIONS}, got {activation!r}")
        cdef int threads = effective_n_threads(n_threads)
        w = as_weights(w, "w", X.n)
        if levels is not None:
            Y = self._level_targets(Y, levels, X.n)
        cdef Py_ssize_t n_targets = X.n if levels is None else 256
        loss = CompleteLoss.of(loss)
        if isinstance(loss, Loss):
            Y = (<Loss> loss).targets(Y, n_targets, n_outputs).base
            if Y.shape[1] == 1:
                Y = Y.copy()  # class codes are indices, which no one else may change
            self.compiled = loss
        else:
            Y = as_float_array(Y, "Y", (n_targets, None))
        cdef JointRows rows = make_joint_rows(X, activation == "anova", linear, n_outputs)
        self.X, self.loss, self.linear, self.n_threads = X, loss, linear, threads
        self.n, self.d, self.m = X.n, X.d, n_outputs
        self.Y, self.w = Y, w
        self.levels = levels if levels is None or rows.order is None else levels[rows.order]
        self.given_levels = levels
        self.Y_rows = Y if rows.order is None or levels is not None else Y[rows.order]
        self.w_rows = w if rows.order is None or w is None else w[rows.order]
        self.spare = [] if spare is None else spare
        self.rows = rows

    def _level_targets(self, Y, levels, n):
        """The targets of 256 levels, so that no byte points outside the table."""
        if (
            not isinstance(levels, np.ndarray) or levels.dtype != np.uint8
            or levels.shape != (n,) or not levels.flags.c_contiguous
        ):
            raise ValueError(f"levels must be a contiguous array of uint8, of shape ({n},)")
        Y = as_float_array(Y, "Y", (None, None))
        if not 1 <= len(Y) <= 256 or (n and levels.max() >= len(Y)):
            raise ValueError(f"Y must have a row for every level, and at most 256, got {len(Y)}")
        return np.vstack([Y, np.repeat(Y[:1], 256 - len(Y), axis=0)])

    cdef int _check_made(self) except -1:
        if self.rows is None:
            raise TypeError("JointObjective.__init__ was not called")
        return 0

    @property
    def activation(self):
        """"squared" or "anova"."""
        self._check_made()
        return "anova" if self.rows.anova else "squared"

    @property
    def targets(self):
        """Encoded targets, (n, 1 or m)."""
        self._check_made()
        return self.Y.base if self.levels is None else self.Y.base[self.given_levels]

    @property
    def w_array(self):
        """Sample weights (n,), or None."""
        self._check_made()
        return None if self.w is None else self.w.base

    cdef Py_ssize_t size(self, Py_ssize_t k) noexcept nogil:
        return k * (self.d + self.m) + (self.m + self.d * self.m if self.linear else 0)

    def n_parameters(self, k):
        """Length of a packed vector [H | V | b | W] with k basis vectors."""
        self._check_made()
        return int(k) * (self.d + self.m) + self.size(0)  # in Python: k has no limit

    def _pack(self, H, V, b, W):
        """[H | V | b | W] as one new vector, and k."""
        self._check_made()
        H = as_float_array(H, "H", (None, self.d), finite=False)
        V = as_float_array(V, "V", (len(H), self.m), finite=False)
        parts = [H.ravel(), V.ravel()]
        for a, name, shape in ((b, "b", (self.m,)), (W, "W", (self.d, self.m))):
            if self.linear and a is None:
                raise ValueError(f"{name} must be given: the objective has linear terms")
            if not self.linear and a is not None:
                raise ValueError(f"{name} must be None: the objective has no linear terms")
            if self.linear:
                parts.append(as_float_array(a, name, shape, finite=False).ravel())
        return np.concatenate(parts), len(H)

    def _split(self, x, k):
        """H, V, b, W as views of a packed vector."""
        d, m = self.d, self.m
        H, V, rest = np.split(x, [k * d, k * (d + m)])
        b, W = (rest[:m], rest[m:].reshape(d, m)) if self.linear else (None, None)
        return H.reshape(k, d), V.reshape(k, m), b, W

    def value_grad(self, H, V, b=None, W=None, *, bint basis=True, D=None):
        """F and its gradients.

        Parameters
        ----------
        H : array-like, (k, d)
        V : array-like, (k, m)
        b : array-like, (m,)
            Only with linear terms, like W.
        W : array-like, (d, m)
        basis : bool
            Whether to compute the gradient with respect to H.
        D : ndarray, (n, m), optional
            Memory that receives the weighted gradients with respect to the outputs.

        Returns
        -------
        value : float
        GH, GV, gb, GW : ndarray or None
            GH is None without `basis`, gb and GW without linear terms.
        """
        x, k = self._pack(H, V, b, W)
        if D is not None:
            as_output(D, "D", (self.n, self.m))
            read = [self.targets, self.w_array, *self._read()]
            if any(a is not None and np.may_share_memory(D, a) for a in read):
                raise ValueError("D must not share memory with X, Y or w; pass another array")
        g = np.empty_like(x)
        value = self._evaluate(x, k, basis, D, g)
        GH, GV, gb, GW = self._split(g, k)
        return value, GH if basis else None, GV, gb, GW

    def _read(self):
        """The arrays of X."""
        return self.X.arrays if self.X.sparse else [self.X.array]

    def _evaluate(self, x, Py_ssize_t k, bint basis, D, g):
        """`run` on arrays that were checked."""
        if self.compiled is None:
            return self._evaluate_python(x, k, basis, D, g)
        order = self.rows.order
        memory = D if D is None or order is None else np.empty_like(D)
        cdef const double[::1] parameters = x
        cdef double[::1] gradient = g
        cdef double[:, ::1] gradients = memory
        cdef double none = 0
        value = self.run(
            &parameters[0] if x.size else &none, k, basis,
            &gradients[0, 0] if D is not None and self.n else NULL,
            &gradient[0] if x.size else &none,
        )
        if memory is not D:
            D[order] = memory
        return value

    def _evaluate_python(self, x, k, basis, D, g):
        if not np.isfinite(x).all():  # a line search may ask for such a point; the answer is NaN
            for a in (g,) if D is None else (g, D):
                a[...] = np.nan
            return float("nan")
        H, V, b, W = self._split(x, k)
        GH, GV, gb, GW = self._split(g, k)
        features = make_features(self.X, H, self.activation, self.n_threads)
        value, gradients = self.loss.value_grad(
            self.targets, self.outputs(H, V, b, W), self.w_array
        )
        gradients = as_float_array(gradients, "the gradient", (self.n, self.m), finite=False)
        if D is not None:
            D[:] = gradients
        if not np.isfinite(gradients).all():
            g[:] = np.nan
            return float(value)
        GV[:] = features.pullback(gradients)
        if basis:
            GH[:] = features.basis_grad_outputs(V, gradients)
        if self.linear:
            gb[:] = gradients.sum(axis=0)
            GW[:] = LinearTerms(self.X).grad(gradients)
        return float(value)

    def value_grad_packed(self, x, Py_ssize_t k, g):
        """F and its gradient at x = [H (k, d) | V (k, m) | b (m) | W (d, m)], all in one vector.

        Parameters
        ----------
        x : ndarray of float64, (n_parameters(k),)
        k : int
            The number of basis vectors.
        g : ndarray of float64, (n_parameters(k),)
            Memory for the gradient; must not overlap x.

        Returns
        -------
        float
        """
        self._check_made()
        cdef const double[::1] parameters
        cdef double[::1] gradient
        if k < 0:
            raise ValueError(f"k must be at least 0, got {k}")
        try:
            parameters = x
        except (TypeError, ValueError):
            raise packed_error("x") from None
        try:
            gradient = g
        except (TypeError, ValueError):
            raise packed_error("g") from None
        if x is None or g is None:
            raise packed_error("x" if x is None else "g")
        # Compared by division: for a forged k the size could overflow.
        cdef bint long = k > parameters.shape[0] // (self.d + self.m)
        cdef Py_ssize_t size = 0 if long else self.size(k)
        if long or parameters.shape[0] != size or gradient.shape[0] != size:
            name, a = ("x", x) if long or parameters.shape[0] != size else ("g", g)
            wanted = self.n_parameters(k)
            raise ValueError(f"{name} must have shape ({wanted},) for k = {k}, got {np.shape(a)}")
        if size == 0:
            return self._evaluate(np.empty(0), k, True, None, np.empty(0))
        if overlap(&parameters[0], size, &gradient[0], size):
            raise ValueError("g must not overlap x; pass another array")
        if self.compiled is None:
            return self._evaluate_python(np.asarray(x), k, True, None, g)
        return self.run(&parameters[0], k, True, NULL, &gradient[0])

    def outputs(self, H, V, b=None, W=None):
        """The outputs o_i, (n, m)."""
        x, k = self._pack(H, V, b, W)
        H, V, b, W = self._split(x, k)
        O = make_features(self.X, H, self.activation, self.n_threads).outputs(V)
        if self.linear:
            O += b
            O += LinearTerms(self.X).outputs(W)
        return O

    def curvature(self, H, V, b=None, W=None, *, bint flat=False):
        """Second derivatives in H, V, b and W, as a preconditioner needs them.

        The coupling of outputs in the loss is left out, and so is the curvature of the activations.
        The rest is positive semi-definite. For a loss without `curvature`, the smoothness is used
        instead, or 1 if that is not finite.

        Parameters
        ----------
        H, V, b, W : array-like
            As for `value_grad`.
        flat : bool
            Whether every row has the mean curvature of each output in place of its own.

        Returns
        -------
        Curvature
            Named tuple (basis, output, intercept, linear); its docstring has the formulas.
        """
        x, k = self._pack(H, V, b, W)
        C = loss_curvature(self.loss, self.targets, self.outputs(H, V, b, W), self.w_array)
        if flat and self.n:
            w = np.ones(self.n) if self.w_array is None else self.w_array
            C = np.outer(w, C.sum(axis=0) / max(w.sum(), 1e-300))
        basis, output = np.zeros((k, self.d)), np.zeros((k, k))
        intercept = C.sum(axis=0) if self.linear else None
        linear = np.zeros((self.d, self.m)) if self.linear else None
        if self.n and x.size:
            self.sum_curvature(
                x, k, C if self.rows.order is None else C[self.rows.order], basis, output, linear
            )
        return Curvature(basis, output, intercept, linear)


cdef object packed_error(str name):
    kind = "" if name == "x" else ", writeable"
    return ValueError(f"{name} must be a one-dimensional, contiguous{kind} array of float64")
