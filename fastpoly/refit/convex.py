"""The refit of the output layer as a convex problem, its duality gap, and two solvers.

    sum_i w_i l(y_i, V's_i + b + W'x_i) + alpha Omega(V) + alpha_linear / 2 |W|^2

with alpha Omega(V) replaced by Omega(V) <= tau in the constrained form. The parameters are the rows
of P = [V; b; W] (k + 1 + d, m), or of P = V where the model has no lower-order terms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES, Floats
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.penalties import FistaStep, fista_update
from fastpoly.kernels.quadratic import Quadratic
from fastpoly.objective import Objective
from fastpoly.refit.lbfgs import ARMIJO, SHORTEST_STEP
from fastpoly.rows import Rows
from fastpoly.rows.rows import Gradient
from fastpoly.state import Model


class Solution(NamedTuple):
    """A point with its certificate, recomputed at that point."""

    P: Floats
    objective: float
    gap: float  # upper bound on objective - minimum
    value: float  # the smooth part F: loss and ridge
    G: Floats  # the gradient of F
    n_iter: int = 0
    converged: bool = False


class OutputProblem:
    """The convex refit of an objective's output layer on the basis vectors H (k, d).

    In place of H, `stored` rows may have the activations of k vectors: as the features of a linear
    model, [S | 1 | X]. Activations of different vectors differ by orders of magnitude, so steps are
    taken in the metric of their squared norms; the penalty itself is not rescaled. Newton's method
    may store `memory` bytes.
    """

    def __init__(
        self, objective: Objective, k: int, H: Floats | None = None, stored: Rows | None = None,
        memory: float = 1e9,
    ) -> None:  # fmt: skip
        self.objective, self.problem, self.rows = objective, objective.problem, objective.rows
        self.k, self.H, self.memory, self.stored = k, H, memory, stored is not None
        if stored is not None:
            self.rows = stored
        width = self.rows.n_features if self.stored else k + self.rows.explicit * (1 + H.shape[1])
        self.n_linear = width - k - 1  # -1 without an intercept
        self.ridge = np.zeros((width, 1))
        self.ridge[k + 1 :] = self.problem.alpha_linear
        self.weights = (np.arange(width) < k).astype(float)
        self._metric: Floats | None = None

    @property
    def metric(self) -> Floats:
        """Squared norms of the columns, with the ridge; only zeros are replaced."""
        if self._metric is None:  # a cached_property of Python 3.11 locks out forked children
            H = np.zeros((0, self.rows.n_features)) if self.stored else self.H
            norms = self.rows.squared_norms(H)[self.stored :]  # stored rows have their own constant
            norms = norms + self.ridge[:, 0]
            largest = norms.max(initial=0.0)
            self._metric = np.maximum(norms, 1e-30 * largest if largest > 0 else 1.0)
        return self._metric

    def model(self, P: Floats) -> Model:
        """The model of the parameters P; stored activations are the features of a linear one."""
        if self.stored:
            return Model(np.zeros((0, len(P))), P[:0], np.zeros(P.shape[1]), P)
        return Model(self.H, *self.split(P))

    def split(self, P: Floats) -> tuple[Floats, Floats, Floats | None]:
        """V, intercept and linear weights."""
        if self.n_linear < 0:
            return P, np.zeros(P.shape[1]), None
        return P[: self.k], P[self.k], P[self.k + 1 :]

    def stack(self, V: Floats, intercept: Floats | None, linear: Floats | None) -> Floats:
        """The parts of a `model`, or of its gradient, in the order of P."""
        if self.stored:
            return linear
        return V if linear is None else np.vstack([V, intercept, linear])

    def size(self, objective: float) -> float:
        """The number to which tolerances are relative."""
        return self.objective.size(objective)

    def value_grad(self, P: Floats) -> tuple[float, Floats]:
        """The smooth part F, loss and ridge, and its gradient."""
        value, *parts = self.rows.value_layers(self.model(P))
        return value + self.ridge_value(P), self.stack(*parts) + self.ridge * P

    def ridge_value(self, P: Floats) -> float:
        return 0.5 * float((self.ridge * P * P).sum())

    def penalty_value(self, P: Floats) -> float:
        """alpha Omega(V), or 0 within the ball."""
        return self.problem.penalty_value(P[: self.k])

    def step(self, Y: Floats, G: Floats, L: float, P_old: Floats, P_new: Floats) -> FistaStep:
        """Write the proximal step from Y to P_new; return the sums of `fista_update`."""
        steps, problem = 1.0 / (L * self.metric), self.problem
        how: dict[str, Any] = {"tau": problem.tau, "weights": self.weights}
        if problem.tau is None:
            how = {"thresholds": problem.alpha * steps * self.weights}
        return fista_update(problem.penalty, Y, G, steps, P_old, P_new, **how)

    def certify(self, P: Floats) -> Solution:
        """P with its certificate; infinite where F overflows."""
        try:
            found = self.rows.gradient(self.model(P))
        except ValueError:
            return Solution(P, np.inf, np.inf, np.inf, np.full(P.shape, np.nan))
        return self.certificate(P, found.value, self.stack(*found[1:4]), found.conjugate)

    def certificate(
        self, P: Floats, loss: float, G: Floats, conjugate: Callable[[float], float]
    ) -> Solution:
        """P with its certificate, from the loss, its gradient, and that of `gap`."""
        gap, value = self.gap(P, loss, G, conjugate), loss + self.ridge_value(P)
        return Solution(P, value + self.penalty_value(P), gap, value, G + self.ridge * P)

    def gap(self, P: Floats, loss: float, G: Floats, conjugate: Callable[[float], float]) -> float:
        """How far P can be from the best one.

        G is the gradient of the loss, and conjugate(c) = sum_i w_i l*(c d_i / w_i).

        For any scale c in 0..1 the loss is at least <c D, O> - l*(c D), which bounds the minimum
        from below once the terms in the unknown optimum P* are bounded: c is chosen such that
        c <G, V*> + alpha Omega(V*) >= 0 (penalized), or c = 1 and <G, V*> >= -tau Omega*(G). Rows
        with a ridge a contribute -c^2 |g|^2 / (2 a). Rows that nothing bounds count as if the
        optimum were no farther than 1 + |P| in the metric. Where the conjugate is not known (NaN),
        l* is convex and l*(0) <= 0 where l >= 0, so l*(c D) <= c l*(D) = c (<D, O> - loss).
        """
        k, alpha, tau = self.k, self.problem.alpha, self.problem.tau
        dual = float(self.problem.penalty.dual_norm(G[:k])) if k else 0.0
        c = 1.0 if tau is not None or dual <= alpha or alpha == 0 else alpha / dual
        bound = conjugate(c)
        if not np.isfinite(bound):
            bound = c * (float(np.vdot(G, P)) - loss)
        gap = loss + bound + (self.penalty_value(P) if tau is None else tau * dual)
        free = self.ridge[:, 0] == 0
        if not free.all():
            a, g, p = self.ridge[~free], G[~free], P[~free]
            gap += 0.5 * float((a * p * p + c**2 * g * g / a).sum())
        free[:k] = alpha == 0
        if free.any():
            intercept_alone = np.flatnonzero(free).tolist() == [k]
            M = np.array([self.rows.weight]) if intercept_alone else self.metric[free]
            M, g, p = M[:, None], G[free], P[free]
            radius = 1 + np.sqrt(float((M * p * p).sum()))
            gap += c * (radius * np.sqrt(float((g * g / M).sum())) - float(np.vdot(g, p)))
        return max(float(gap), 0.0)


def refit_gap(objective: Objective, model: Model, gradient: Gradient) -> float:
    """The duality gap of a model among those with the same basis vectors."""
    convex = OutputProblem(objective, len(model.H), model.H)
    P, G = convex.stack(*model[1:]), convex.stack(*gradient[1:4])
    return convex.gap(P, gradient.value, G, gradient.conjugate)


def fista(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimize from P until the certified gap is at most tol times the objective.

    Each step is  P+ = argmin_U <G, U> + L/2 |U - Y|_M^2 + R(U)  at the extrapolated point Y, where
    M is the problem's row-diagonal metric, G the gradient at Y, and R the penalty or the ball. The
    constant L starts from an estimate of the curvature along the first step, follows the curvature
    seen between successive points, and may shrink again. The momentum restarts when it points
    uphill. Each iteration is one pass over the data. The result is the best prox point at which the
    certificate was computed, so zero rows are exactly zero.
    """

    def reached(point: Solution) -> bool:
        return bool(point.gap <= tol * problem.size(point.objective))

    best = problem.certify(P)
    if (reached(best) and not at_least) or max_iter == 0 or not P.size:
        return best._replace(converged=reached(best))
    L, G = first_curvature(problem, P, best.G), best.G
    Y, P_old, momentum = P, P, 1.0
    for n_iter in range(1, max_iter + 1):
        P = np.empty_like(Y)
        sums = problem.step(Y, G, L, P_old, P)
        if not np.isfinite(sums.quadratic):
            L, Y, P_old, momentum, G = 10 * L, best.P, best.P, 1.0, best.G
            continue
        # A certificate costs about as much as an iteration.
        if n_iter % 10 == 0 or n_iter == max_iter or sums.quadratic == 0:
            here = problem.certify(P)
            if here.objective <= best.objective:
                best = here
            else:
                # The bound on the minimum from here also holds for the better point.
                gap = max(here.gap - (here.objective - best.objective), 0.0)
                best = best._replace(gap=min(best.gap, gap))
            if (reached(best) and n_iter >= at_least) or sums.quadratic == 0:
                break
            if here.objective > best.objective + tol * problem.size(best.objective):
                # The step was too long: back to the best point, with shorter steps, no momentum.
                L, Y, P_old, momentum, G = 2 * L, best.P, best.P, 1.0, best.G
                continue
        if sums.restart > 0:
            momentum = 1.0
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        Y_next = P + (momentum - 1) / next_momentum * (P - P_old)
        _, G_next = problem.value_grad(Y_next)
        moved = metric_norm(problem, Y_next - Y)
        if moved > 0:
            seen = float(((G_next - G) * (Y_next - Y)).sum()) / moved
            # With a faster fall, L is soon below the curvature, and the objective rises.
            L = 1.1 * seen if seen > L else max(seen, 0.998 * L)
        Y, G, P_old, momentum = Y_next, G_next, P, next_momentum
    return best._replace(n_iter=n_iter, converged=reached(best))


def metric_norm(problem: OutputProblem, D: Floats) -> float:
    """|D|_M^2 = sum_r M_r |d_r|^2."""
    return float(np.einsum("ij,ij,i->", D, D, problem.metric))


def first_curvature(problem: OutputProblem, P: Floats, G: Floats) -> float:
    """Curvature of F along the scaled gradient at P, the first guess of L."""
    direction = G / problem.metric[:, None]
    length = metric_norm(problem, direction)
    if length == 0:
        return 1.0
    # The step is short compared to the size of P, so that it measures the curvature at P.
    t = 1e-3 * (1 + np.sqrt(metric_norm(problem, P))) / np.sqrt(length)
    _, G_there = problem.value_grad(P - t * direction)
    curvature = float(((G - G_there) * direction).sum()) / (t * length)
    return curvature if np.isfinite(curvature) and curvature > 0 else 1.0


# ---- Newton's method -----------------------------------------------------------------------------


def newton(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimize from P, as `fista` does; only the penalized form, and compiled penalties."""
    run = Newton(problem, P)
    best = mark = None
    for n_iter in range(max_iter + 1):
        here = run.certify()._replace(n_iter=n_iter)
        size = problem.size(here.objective)
        # Near the optimum the objective stops falling, within rounding, before the gap does.
        slack = rounding(here.objective)
        if best is None or here.objective < best.objective - slack or here.gap < best.gap:
            best = here._replace(converged=bool(here.gap <= tol * size))
        if (best.converged and n_iter >= at_least) or n_iter == max_iter:
            break
        gained = mark is None or mark.objective - here.objective > 0.1 * tol * size
        if gained or here.gap < 0.5 * mark.gap:
            mark = best
        elif n_iter - mark.n_iter >= run.patience:
            break
        if not P.size or not run.step(here.G, here.objective):
            break
    return best._replace(n_iter=n_iter)


def rounding(objective: float) -> float:
    """The rounding error of an objective of this size."""
    return 4 * float(np.spacing(abs(objective)))


def couples(problem: OutputProblem) -> bool:
    """Whether B, (k m)^2 entries, has the interactions of outputs; l1 and l1/linf need them."""
    # With k m = 900 an iteration takes .6 s, and reaches no more than FISTA does in .1 s.
    n, k, m, loss = problem.rows.n_samples, len(problem.ridge), problem.rows.m, problem.problem.loss
    fits = 16 * (k * m) ** 2 <= BLOCK_DOUBLES and 4 * n * m * (m + 1) <= problem.memory
    return fits and loss.shift_invariant and loss.hessian is not None


class Newton:
    """Proximal Newton steps: few, each expensive; far faster for ill-conditioned activations.

    Around P the loss is replaced by its second-order model, and the minimum of

        q(x) = <G, x - P> + 1/2 <x - P, B (x - P)> + alpha Omega(V),    B = the Hessian in groups

    is found without touching the n rows again (`fastpoly.kernels.quadratic`). There is one group of
    all outputs, or one per output where the loss does not couple them or B would be too large. B is
    damped by a share of the largest curvature of the loss, which grows tenfold while steps fail:
    where the loss is nearly linear, the minimum of the undamped model is too far away.
    """

    patience = 40  # iterations without progress; collinear columns always leave a little to gain
    curvature_change = 0.1  # share by which the curvature changes before a partial B is made anew

    def __init__(self, problem: OutputProblem, P: Floats) -> None:
        block = problem.rows.block
        self.problem, self.loss, self.P, self.design = problem, block.loss, P, block.design
        self.Z, self.Y, self.w = block.design.matrix.array, block.objective.targets, block.w
        self.O, self.C, self.B = self.Z @ P, None, None
        self.least_damping = self.damping = float(np.finfo(np.float64).eps)
        self.coupled = couples(problem)
        # Whether B is only part of the Hessian. It then has curvature where all outputs grow alike.
        self.partial = self.loss.shift_invariant and not self.coupled

    def certify(self) -> Solution:
        """P with its certificate."""
        loss, Y, w = self.loss, self.Y, self.w
        value, D = loss.value_grad(Y, self.O, w)
        G = self.Z.T @ D
        return self.problem.certificate(self.P, value, G, lambda c: loss.conjugate(Y, D, c, w))

    def step(self, G: Floats, objective: float) -> bool:
        """Move from P, given its gradient and objective; return False if nothing is gained."""
        C = (self.loss.hessian if self.coupled else self.loss.curvature)(self.Y, self.O, self.w)
        known = self.partial and self.C is not None
        if not known or np.abs(C - self.C).sum() > self.curvature_change * np.abs(self.C).sum():
            self.C, self.B = C, self.hessian(C)
        while self.damping <= 1.0:
            if self.search(self.target(G), G, objective):
                self.damping = max(0.1 * self.damping, self.least_damping)
                return True
            self.damping *= 10
        return False

    def hessian(self, C: Floats) -> Floats:
        """B (1, k m, k m), or (m, k, k) without interactions of outputs."""
        m = self.P.shape[1]
        sums = explicit_gamma(self.design.matrix, C, n_threads=self.design.n_threads)
        if not self.coupled:
            return sums.dense()
        pair = np.zeros((m, m), dtype=np.intp)
        pair[np.triu_indices(m)] = np.arange(C.shape[1])
        B = sums.blocks_array()[:, :, np.maximum(pair, pair.T)].transpose(0, 2, 1, 3)
        return B.reshape(1, B.shape[0] * m, -1)

    def target(self, G: Floats) -> Floats:
        """The minimum of q, with some damping."""
        problem, B = self.problem, self.B.copy()
        i = np.arange(B.shape[1])
        row = i // (len(i) // len(self.P))
        bound = float(self.loss.smoothness(self.P.shape[1])) * problem.metric[row]
        bound = np.where(np.isfinite(bound), bound, B[:, i, i])
        B[:, i, i] += problem.ridge[row, 0] + self.damping * bound
        thresholds = problem.problem.alpha * problem.weights
        return Quadratic(problem.problem.penalty, B, self.P, G, thresholds).minimum()

    def search(self, target: Floats, G: Floats, objective: float) -> bool:
        """Armijo's rule on the way from P to the target; whether a step was taken."""
        problem, move = self.problem, target - self.P
        slope = float((G * move).sum())
        slope += problem.penalty_value(target) - problem.penalty_value(self.P)
        slack = rounding(objective)
        O_move, t = self.Z @ move, 1.0
        while slope <= slack and t >= SHORTEST_STEP:
            # A full step ends on the minimizer itself, whose zero rows are exactly zero.
            P, O = (target if t == 1.0 else self.P + t * move), self.O + t * O_move
            total = self.loss.value(self.Y, O, self.w)
            total += problem.ridge_value(P) + problem.penalty_value(P)
            if total <= objective + ARMIJO * t * min(slope, 0.0) + slack:
                self.P, self.O = self.center(P, O) if self.partial else (P, O)
                return True
            t *= 0.5
        return False

    def center(self, P: Floats, O: Floats) -> tuple[Floats, Floats]:
        """Rows without their means if that is a gain; the loss does not change."""
        shift = P.mean(axis=1, keepdims=True)
        if self.problem.penalty_value(P - shift) < self.problem.penalty_value(P):
            return P - shift, O - self.Z @ shift
        return P, O
