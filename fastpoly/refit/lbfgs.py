"""Preconditioned limited-memory BFGS, monotone, with optional bounds, and the preconditioner.

    x+ = x - t B g,     B = inverse Hessian from the last pairs (s, y) on top of scale * P

P is the preconditioner and scale = s'y / y'Py of the last pair. The memory is kept in the compact
form of Byrd, Nocedal and Schnabel (1994): with S = [s_1 ..], PY = [P y_1 ..], R_ij = s_i'y_j for
i <= j, D = diag(s_i'y_i),

    u = R^-1 S'g,   v = R^-T ((D + scale Y'PY) u - scale PY'g),
    B g = scale P g + S v - scale PY u,

so an iteration reads the memory twice. SciPy's L-BFGS-B takes no preconditioner, which is the
largest gain here: without it, satimage takes several times as many passes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dtrsv

from fastpoly.kernels.checks import Floats
from fastpoly.kernels.smooth_forms import SmoothForm
from fastpoly.problem import Problem
from fastpoly.rows.design import NO_CURVATURE, Curvature
from fastpoly.state import Model

ValueGrad = Callable[[Floats, Floats], float]

ARMIJO = 1e-4  # share of the predicted decrease that a step must reach
SHORTEST_STEP = 1e-8  # step, as a share of the full one, below which a line search gives up
# Share of the mean curvature (for basis vectors) or of a parameter's own curvature (for the others)
# that is added everywhere, to keep directions without curvature bounded. (1e-4 stalls on badly
# scaled columns.)
DAMPING_SHARE = 1e-6


class Minimum(NamedTuple):
    """The point where `minimize` ended."""

    x: Floats
    value: float
    n_iter: int
    converged: bool


class Memory:
    """The pairs (s, y) of the last iterations and the inverse Hessian that they give."""

    def __init__(self, size: int, n: int) -> None:
        self.size, self.first, self.count = size, 0, 0
        # s and P y, with room for twice as many, so that they are moved once per `size` iterations.
        self.pairs = np.empty((2, 2 * size, n))
        self.sy, self.ypy = np.zeros((size, size)), np.zeros((size, size))

    def push(self, s: Floats, y: Floats, Py: Floats) -> None:
        """Add a pair, unless the curvature along it is not positive, or is a rounding error."""
        curvature, length = s @ y, y @ Py
        if not (curvature > len(s) * np.spacing(np.abs(s) @ np.abs(y)) and length > 0):
            return
        if self.count == self.size:
            for array in (self.sy, self.ypy):
                array[:-1, :-1] = array[1:, 1:].copy()
            self.first, self.count = self.first + 1, self.count - 1
        if self.first == self.size:
            self.pairs[:, : self.count] = self.pairs[:, self.first : self.first + self.count]
            self.first = 0
        j = self.count
        old = self.pairs[:, self.first : self.first + j]
        self.sy[:j, j] = old[0] @ y
        self.ypy[:j, j] = self.ypy[j, :j] = old[1] @ y
        self.sy[j, j], self.ypy[j, j] = curvature, length
        self.pairs[0, self.first + j], self.pairs[1, self.first + j] = s, Py
        self.count += 1

    def direction(self, g: Floats, Pg: Floats) -> Floats:
        """-B g."""
        j = self.count
        if not j:
            return -Pg
        S, PY = self.pairs[:, self.first : self.first + j]
        R, YPY = self.sy[:j, :j], self.ypy[:j, :j]
        scale = R[-1, -1] / YPY[-1, -1]
        # R is C-ordered: for BLAS it is the transpose, a lower triangle.
        u = dtrsv(R.T, S @ g, lower=1, trans=1)
        v = dtrsv(R.T, R.diagonal() * u + scale * (YPY @ u - PY @ g), lower=1)
        return (scale * u) @ PY - v @ S - scale * Pg


def minimize(
    objective: ValueGrad, x: Floats, precondition: Callable[[Floats], Floats], *, max_iter: int,
    ftol: float, memory: int, bounds: tuple[Floats, Floats] | None = None,
) -> Minimum:  # fmt: skip
    """Minimize from x, a point within the bounds; the value never rises.

    objective(x, g) returns the value at x and writes the gradient to g; precondition(g) = P g. It
    ends when five iterations gained at most `ftol` of the value. Variables at a bound that a step
    would cross are held; the others move as if those did not exist (P must not couple them).
    """
    pairs = Memory(memory, len(x))
    g = np.empty_like(x)
    value = objective(x, g)
    values = [value]
    Pg = None
    for n_iter in range(max_iter):
        held = None if bounds is None else _held(x, g, bounds)
        if held is not None:
            g[held] = 0.0
        if Pg is None or held is not None:
            Pg = precondition(g)
        step = pairs.direction(g, Pg)
        if held is not None:
            step[held] = 0.0
        slope = step @ g
        if not slope < 0:
            pairs.count, step = 0, -Pg
            slope = step @ g
        found = _search(objective, x, value, step, slope, bounds) if slope < 0 else None
        if found is None:
            if not pairs.count:
                return Minimum(x, value, n_iter, True)
            pairs.count = 0  # the memory may be misleading: try once more without it
            continue
        x_new, value, g_new = found
        y = g_new - g
        if held is None:
            Pg_new = precondition(g_new)
            pairs.push(x_new - x, y, Pg_new - Pg)
            Pg = Pg_new
        else:
            y[held] = 0.0
            pairs.push(x_new - x, y, precondition(y))
        x, g = x_new, g_new
        values.append(value)
        if len(values) > 5 and values[-6] - value <= ftol * abs(value):
            return Minimum(x, value, n_iter + 1, True)
    return Minimum(x, value, max_iter, False)


def _held(x: Floats, g: Floats, bounds: tuple[Floats, Floats]) -> NDArray[np.bool_]:
    """Variables at a bound that a descent step would cross."""
    return ((x <= bounds[0]) & (g > 0)) | ((x >= bounds[1]) & (g < 0))


def _search(
    objective: ValueGrad, x: Floats, value: float, step: Floats, slope: float,
    bounds: tuple[Floats, Floats] | None,
) -> tuple[Floats, float, Floats] | None:  # fmt: skip
    """The first point along the step with enough decrease; each trial at least halves the step."""
    t = 1.0
    while t > SHORTEST_STEP:
        x_new = x + t * step
        if bounds is not None:
            np.clip(x_new, *bounds, out=x_new)
        g_new = np.empty_like(x)
        new = objective(x_new, g_new)
        if new <= value + ARMIJO * t * slope:
            return x_new, new, g_new
        quadratic = -0.5 * slope * t * t / (new - value - slope * t) if np.isfinite(new) else 0.0
        t = min(max(quadratic, 0.1 * t), 0.5 * t)
    return None


class Preconditioner:
    """g -> P g on packed parameters [H | V | intercept | linear]: the inverse curvature in blocks.

    Basis vectors: P_r = T diag(1 / (b_r + penalty)) T' for vector r, with the directions T and the
    curvatures b_r of the loss. Output layer, intercept and linear weights: one matrix for all
    outputs, the inverse of the Gram matrix plus penalties. The model is in the scale of the form.
    """

    def __init__(
        self, problem: Problem, form: SmoothForm, model: Model, curvature: Curvature
    ) -> None:
        H, V = model.H, model.V
        self.k, self.d, self.m = *H.shape, V.shape[1]
        alpha = problem.alpha
        T = self.directions = curvature.directions
        HT, T2 = (H, np.ones(self.d)) if T is None else (H @ T, np.einsum("ij,ij->j", T, T))
        self.basis = _inverse(curvature.basis + form.curvature(H, alpha, HT, T2))

        ridge = np.full(len(curvature.joint), problem.alpha_linear)
        ridge[: self.k] = form.output_curvature(alpha)
        ridge[self.k : self.k + 1] = 0.0
        # Where V is bounded or fixed, its entries must not be coupled with others.
        self.first = 0 if form.bound is None and not form.fixed else self.k
        own = curvature.joint.diagonal()[: self.k] + ridge[: self.k]
        self.outputs = None if self.first == 0 else _inverse(own)[:, None]
        among = slice(self.first, None)
        self.joint = _inverse_matrix(curvature.joint[among, among], ridge[among])
        self.diagonals = None
        if curvature.linear is not None:
            weights = _inverse(curvature.linear + problem.alpha_linear)
            self.diagonals = np.vstack([_inverse(curvature.intercept), weights])

    def __call__(self, g: Floats) -> Floats:
        k, d, m = self.k, self.d, self.m
        out = np.empty_like(g)
        G = g[: k * d].reshape(k, d)
        if self.directions is None:
            out[: k * d] = (G * self.basis).ravel()
        else:
            out[: k * d] = (((G @ self.directions) * self.basis) @ self.directions.T).ravel()
        G, P = g[k * d :].reshape(-1, m), out[k * d :].reshape(-1, m)
        if self.outputs is not None:
            P[:k] = self.outputs * G[:k]
        last = self.first + len(self.joint)
        P[self.first : last] = self.joint @ G[self.first : last]
        if self.diagonals is not None:
            P[k:] = self.diagonals * G[k:]
        return out


def _inverse(curvature: Floats) -> Floats:
    """1 / curvature, where a curvature near zero counts as a small share of the mean."""
    floor = DAMPING_SHARE * curvature.mean(axis=-1, keepdims=True) if curvature.size else 0.0
    return 1 / (curvature + np.where(floor > NO_CURVATURE, floor, 1.0))


def _inverse_matrix(gram: Floats, ridge: Floats) -> Floats:
    """(gram + diag(ridge))^-1, with a little damping in units of the diagonal."""
    if not gram.size:
        return np.zeros((0, 0))
    A = gram + np.diag(ridge)
    scale = A.diagonal().copy()
    scale[scale <= NO_CURVATURE] = 1.0
    scale = 1 / np.sqrt(scale)
    A = A * scale * scale[:, None] + DAMPING_SHARE * np.eye(len(A))
    return np.linalg.inv(A) * scale * scale[:, None]
