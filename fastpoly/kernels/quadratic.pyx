"""The minimum of a quadratic with a penalty, which is the model of a Newton step:

    q(V) = <G, V - P> + 1/2 <V - P, B (V - P)> + sum_r t_r ||v_r||

V (k, m) is laid out as x (groups, k q), with groups x q = m outputs; the outputs of a group are
next to each other in every row. B (groups, k q, k q) has the second derivatives within a group:
there is one group of all outputs if they interact, else one per output.

Each round makes a few sweeps of block coordinate descent, which find the zeros, and solves one
linear system per group, in which a smooth model stands for the penalty. Sweeps alone are slow where
activations are nearly collinear, as those of dense quadratic features are; systems alone never
reach a zero. In a sweep, rows are updated one after the other by a proximal step with their own
curvature L_r >= the largest eigenvalue of B_rr,

    v_r <- prox_{t_r / L_r}(v_r - g_r / L_r),   then   g += B (change of v_r).
"""

from contextlib import suppress

import numpy as np

from fastpoly.kernels.gamma_loops cimport choose_gamma_loops, gamma_loops
from fastpoly.kernels.memory cimport overlap
from fastpoly.kernels.penalties cimport Penalty

from fastpoly.kernels.checks import as_float_array, as_output

cdef const gamma_loops* loops = choose_gamma_loops()

# All three are measured in bench/README.md, "Ablation of the output refit".
LAST_ROUND_GAIN = 1e-2  # share of the total gain; a round that gains less is the last one
SWEEPS = 10             # sweeps per round: enough to find the zeros, and cheaper than a system
SHARPER = 0.3           # smoothing of a round, as a share of the smoothing of the round before


def sweep(Penalty penalty not None, B, curvature, thresholds, x, g):
    """Update every row once; x and the gradient g of the smooth part, (groups, k q), change.

    B is symmetric. `curvature` and `thresholds` (k,) are L_r and t_r: a row with L_r = 0 has no
    influence on the smooth part, and one with t_r = 0 has no penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.kernels.penalties import get_penalty
    >>> from fastpoly.kernels.quadratic import sweep
    >>> x, g = np.zeros((1, 1)), np.array([[-6.0]])
    >>> sweep(get_penalty("l1"), np.full((1, 1, 1), 2.0), [2.0], [2.0], x, g)
    >>> x, g
    (array([[2.]]), array([[-2.]]))
    """
    cdef const double[:, :, ::1] b = as_float_array(B, "B", (None,) * 3, finite=False)
    cdef const double[::1] own = as_float_array(curvature, "curvature", (None,), finite=False)
    cdef Py_ssize_t groups = b.shape[0], n = b.shape[1], k = own.shape[0], q = n // max(k, 1)
    cdef const double[::1] t = as_float_array(thresholds, "thresholds", (k,))
    if b.shape[2] != n or k * q != n:
        raise ValueError(f"B must have shape (groups, k q, k q) with k = {k}, got {np.shape(B)}")
    if x is None or g is None:
        raise TypeError("x and g must be arrays, got None")
    cdef double[:, ::1] v = as_output(x, "x", (groups, n)), s = as_output(g, "g", (groups, n))
    cdef Py_ssize_t r, c, j, i, size = groups * n
    if not size:
        return
    if (
        overlap(&v[0, 0], size, &s[0, 0], size)
        or overlap(&v[0, 0], size, &b[0, 0, 0], size * n)
        or overlap(&s[0, 0], size, &b[0, 0, 0], size * n)
    ):
        raise ValueError("x, g and B must not share memory; pass copies")
    cdef double change
    cdef double[::1] row = np.empty(groups * q)
    with nogil:
        for r in range(k):
            if not (own[r] > 0 or t[r] > 0):
                continue  # nothing depends on this row
            for c in range(groups * q):
                j, i = c // q, r * q + c % q
                row[c] = v[j, i] - s[j, i] / own[r] if own[r] > 0 else 0
            if own[r] > 0 and t[r] > 0:
                penalty.row_prox(&row[0], t[r] / own[r], groups * q)
            for c in range(groups * q):
                j, i = c // q, r * q + c % q
                change = row[c] - v[j, i]
                v[j, i] = row[c]
                if change != 0:
                    loops.add_multiple(&b[j, i, 0], n, change, &s[j, 0])


class Quadratic:
    """A point x of the model, with the gradient g of its smooth part and the value q(x).

    Parameters
    ----------
    penalty : Penalty
    B : ndarray, (groups, k q, k q)
    P, G : ndarray, (k, m)
        The point where the search starts, and the gradient there.
    thresholds : ndarray, (k,)
        t_r; 0 for a row without penalty.
    """

    def __init__(self, penalty, B, P, G, thresholds):
        self.penalty, self.B, self.k, self.thresholds = penalty, B, len(P), thresholds
        q = B.shape[1] // self.k
        own = np.einsum("grarb->rgab", B.reshape(len(B), self.k, q, self.k, q))
        self.curvature = np.linalg.eigvalsh(own).max(axis=(1, 2))
        self.x0, self.g0 = self.grouped(P), self.grouped(G)
        self.x, self.g = self.x0.copy(), self.g0.copy()
        self.value = self.value_at(self.x, self.g)

    def grouped(self, P):
        """P (k, m) in the layout of x, a copy."""
        groups = len(self.B)
        return P.reshape(self.k, groups, -1).swapaxes(0, 1).reshape(groups, -1).copy()

    def ungrouped(self, x):
        """The inverse of `grouped`."""
        return x.reshape(len(x), self.k, -1).swapaxes(0, 1).reshape(self.k, -1)

    def value_at(self, x, g):
        """q(x), from the gradients at the start and at x."""
        smooth = 0.5 * float(((self.g0 + g) * (x - self.x0)).sum())
        return smooth + float(self.thresholds @ self.penalty.row_norms(self.ungrouped(x)))

    def minimum(self):
        """The minimizer, (k, m)."""
        total, level = 0.0, 1.0
        while level > np.finfo(np.float64).eps:
            gained = self.descend() + self.solve(level)
            total += gained
            if gained <= LAST_ROUND_GAIN * total:
                break
            level *= SHARPER
        self.sweep()  # makes zero rows exactly zero again
        return self.ungrouped(self.x)

    def sweep(self):
        """Update every row once."""
        sweep(self.penalty, self.B, self.curvature, self.thresholds, self.x, self.g)

    def descend(self):
        """Sweep a few times, then extrapolate ever farther while it pays; return the gain."""
        before, x, g = self.value, self.x.copy(), self.g.copy()
        for _ in range(SWEEPS):
            self.sweep()
        self.value = self.value_at(self.x, self.g)
        step, change = self.x - x, self.g - g
        while self.move(step, change):
            step, change = 2 * step, 2 * change
        return before - self.value

    def solve(self, level):
        """Take one Newton step with the smooth model of the penalty; return the gain."""
        before, step = self.value, self.newton_step(level)
        change = (self.B @ step[:, :, None])[:, :, 0]
        for t in 0.5 ** np.arange(7):  # shorter steps gain less than the next sweeps
            if self.move(t * step, t * change):
                break
        return before - self.value

    def move(self, step, change):
        """Take the step, in which g changes by `change`, if that is a gain."""
        x, g = self.x + step, self.g + change
        value = self.value_at(x, g)
        better = value < self.value
        if better:
            self.x, self.g, self.value = x, g, value
        return better

    def newton_step(self, level):
        """The step to the minimum of the smooth model; entries that are kept at zero stay."""
        smooth = self.penalty.smooth_model(self.ungrouped(self.x), level)
        move = np.zeros_like(self.x)
        if smooth is None:
            return move
        t = self.thresholds[:, None]
        slope, d, a = (
            self.grouped(scale * np.where(t > 0, part, 0.0))
            for part, scale in zip(smooth, (t, t, np.sqrt(t)), strict=True)
        )
        row = np.repeat(np.arange(self.k), self.x.shape[1] // self.k)
        free = np.isfinite(d) & (self.curvature > 0)[row]
        for j, at in enumerate(free):
            B = self.B[j][np.ix_(at, at)] + np.diag(d[j, at])
            B -= np.where(row[at, None] == row[at], a[j, at, None] * a[j, at], 0.0)
            with suppress(np.linalg.LinAlgError):
                move[j, at] = np.linalg.solve(B, -(self.g + slope)[j, at])
        return move
