"""Refitting V and H together: a non-convex problem, improved from the refitted output layer.

    minimise  sum_i w_i l(y_i, V's(H x_i) + lower_i) + alpha Omega(V)   over V and |h_r| <= 1

by accelerated proximal gradient with a line search, V and H each in the metric of their own
squared gradients' scale. It stops as soon as progress is slow; the output layer is then refitted
on the new basis vectors. The objective never rises: what is not an improvement is not returned.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.penalties import fista_update
from fastpoly.refit.output import OutputRefit, Refit
from fastpoly.rows.design import Design

Floats = NDArray[np.float64]

LOOK_BACK = 5
MAX_STEPS = 100


class _Point(NamedTuple):
    V: Floats
    H: Floats


def refit_full(
    design: Design, fitter: OutputRefit, H: Floats, fit: Refit, *, tol: float, max_iter: int
) -> tuple[Floats, Refit]:
    """Improve H and the refitted output layer together.

    Parameters
    ----------
    design : Design
    fitter : OutputRefit
    H : ndarray, (k, n_features)
    fit : Refit
        The output layer refitted on H.
    tol : float
        Stop when a few steps gain less than tol / 10 of the objective.
    max_iter : int

    Returns
    -------
    H : ndarray, (k, n_features)
    fit : Refit
        An output layer with an objective that is not above the one given.
    """
    if not len(H):
        return H, fit
    climber = _FullRefit(design, fitter, fit)
    point = climber.run(_Point(fit.V, H), fit.objective, tol, min(max_iter, MAX_STEPS))
    # Rows that became zero would keep their old basis vector: nothing is gained by refitting it.
    refitted = fitter(
        design.features(point.H), point.V, fit.intercept, fit.linear,
        linear=design.linear, tol=tol, max_iter=max_iter,
    )  # fmt: skip
    return (point.H, refitted) if refitted.objective < fit.objective else (H, fit)


class _FullRefit:
    """The joint problem in V and H; lower-order terms stay as they are."""

    def __init__(self, design: Design, fitter: OutputRefit, fit: Refit) -> None:
        self.design, self.fitter = design, fitter
        self.ridge = 0.0
        self.lower: Floats | float = 0.0
        if design.linear is not None:
            self.lower = design.linear.outputs(fit.linear) + fit.intercept
            self.ridge = 0.5 * fitter.alpha_linear * float((fit.linear**2).sum())

    def objective(self, point: _Point) -> float:
        O = self.design.outputs(point.H, point.V) + self.lower
        return self.fitter.loss.value(self.fitter.Y, O, self.fitter.w) + self.ridge

    def gradients(self, point: _Point) -> tuple[float, Floats, Floats]:
        """F, dF/dV (k, m) and dF/dH (k, d)."""
        features = self.design.features(point.H)
        O = features.outputs(point.V) + self.lower
        value, D = self.fitter.loss.value_grad(self.fitter.Y, O, self.fitter.w)
        return value + self.ridge, features.pullback(D), features.basis_grad_outputs(point.V, D)

    def metrics(self, point: _Point) -> tuple[Floats, Floats]:
        """Scales of the curvature in the rows of V and of H, up to one common factor.

        The outputs change by s_ir in v_r, and by v_r (ds_ir/dh_r) in h_r, where the activation is
        of degree 2: |ds/dh| is about 2 s / |h| along h, and that is the direction that counts.
        """
        w, norms = self.fitter.w, np.zeros(len(point.H))
        for S, rows in self.design.features(point.H).blocks():
            norms += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
        norms = np.maximum(norms, 1e-12 * norms.max(initial=1e-300))
        sizes = (point.V**2).sum(axis=1)
        length = np.maximum((point.H**2).sum(axis=1), 1e-12)
        hidden = 4 * norms * sizes / length
        return norms, np.maximum(hidden, 1e-9 * hidden.max(initial=1e-300))

    def penalised(self, value: float, V: Floats) -> float:
        if self.fitter.tau is not None:
            return value
        return value + self.fitter.alpha * float(self.fitter.penalty.value(V))

    def step(self, at: _Point, G_V: Floats, G_H: Floats, L: float) -> tuple[_Point, float, float]:
        """The proximal step, its first-order change and its squared length in the metric."""
        fitter = self.fitter
        steps = 1 / (L * self.metric_V)
        V = np.empty_like(at.V)
        if fitter.tau is None:
            sums = fista_update(
                fitter.penalty, at.V, G_V, steps, at.V, V, thresholds=fitter.alpha * steps
            )
        else:
            sums = fista_update(fitter.penalty, at.V, G_V, steps, at.V, V, tau=fitter.tau)
        H = at.H - G_H / (L * self.metric_H[:, None])
        H /= np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1.0)
        move = H - at.H
        linear = sums.linear + float((G_H * move).sum())
        quadratic = sums.quadratic + L * float((self.metric_H[:, None] * move**2).sum())
        return _Point(V, H), linear, quadratic

    def run(self, point: _Point, objective: float, tol: float, max_iter: int) -> _Point:
        self.metric_V, self.metric_H = self.metrics(point)
        best = previous = at = point
        reached = [objective]
        smoothness = float(self.fitter.loss.smoothness(self.fitter.m))
        momentum, L = 1.0, smoothness if np.isfinite(smoothness) else 1.0
        for _ in range(max_iter):
            value, G_V, G_H = self.gradients(at)
            for _ in range(60):
                new, linear, quadratic = self.step(at, G_V, G_H, L)
                after = self.objective(new)
                if after <= value + linear + quadratic / 2 + 1e-12 * abs(value):
                    break
                L *= 2
            else:
                break
            L *= 0.9
            total = self.penalised(after, new.V)
            if total > reached[-1]:
                if momentum == 1.0:
                    break
                momentum, at, previous = 1.0, best, best
                continue
            best = new
            reached.append(total)
            if len(reached) > LOOK_BACK and reached[-LOOK_BACK - 1] - total <= 0.1 * tol * abs(
                total
            ):
                break
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            beta = (momentum - 1) / following
            V = new.V + beta * (new.V - previous.V)
            H = new.H + beta * (new.H - previous.H)
            H /= np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1.0)
            at, previous, momentum = _Point(V, H), new, following
        return best
