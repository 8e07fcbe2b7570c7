"""Proximal Newton for the refit of the output layer: few passes over the data, each a dear one.

Around P the loss is replaced by its second-order model

    <G, P+ - P> + 1/2 <P+ - P, B (P+ - P)>,    B_c = S' diag(C_:c) S + ridge for every output c

(with the blocks between outputs too where few outputs interact). Its penalised minimum is found
without touching the n rows again, and the step towards it is taken as far as the objective allows
(Armijo). On dense quadratic features, which are ill-conditioned, this takes far less time than
accelerated gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.features import StoredFeatures
from fastpoly.kernels.matrix import as_matrix
from fastpoly.refit.fista import Certificate, Solution
from fastpoly.refit.newton_step import anderson, direction
from fastpoly.refit.output_problem import OutputProblem

Floats = NDArray[np.float64]

ARMIJO = 1e-4
# The relative error of an objective, and the steps in vain that end the search.
ROUNDING = 1e-15
PATIENCE = 3
# So many steps together must gain this share of the tolerance, or halve the gap. Where columns are
# collinear within rounding there is always something left to gain, but next to nothing a step.
SLOW = 10
WORTH = 0.1
EXTRAPOLATE = 5
# The Hessian with all interactions of outputs has (k m)^2 entries.
COUPLED_OUTPUTS = 16
COUPLED_PARAMETERS = 1200
COUPLED_BYTES = 2**28  # of the second derivatives of all rows, within the problem's memory
# Forming B is the dear part: it is kept until the curvature has changed by this share.
CHANGE = 0.1
DAMPING = 1e-10
FLAT = 1e-20
# Levels of damping, as shares of the largest curvature: the lowest, and from one to the next.
LOWEST = 1e-8
LEVEL = 10.0
# Shares of the way to the model's minimum: the shortest that is tried before there is more damping,
# and where nobody knows the largest curvature; how often the way is doubled.
SHORTEST = 1e-4
TINIEST = 1e-8
DOUBLINGS = 20
STRAIGHT = 0.75  # share of what the slope foretells that is gained where there is no curvature
# Accuracy of the model's minimum: the share of the first sweep's movement that is left; of a model
# without the interactions of outputs, whose minimum is not that of the objective.
INNER = 1e-3
ROUGH = 1e-2


def curvature(problem: OutputProblem, O: Floats) -> Floats:
    """Weighted second derivatives of the loss at the outputs.

    (n, m), the diagonal of the Hessian of every row; or (n, m (m + 1) / 2), all of it, where the
    outputs interact and the Hessian in V is small enough.
    """
    objective = problem.objective
    loss, Y, w = objective.loss, objective.targets, objective.w_array
    if couples(problem):
        return loss.hessian(Y, O, w)
    if hasattr(loss, "curvature"):
        return loss.curvature(Y, O, w)
    C = np.full(O.shape, float(loss.smoothness(objective.m)))
    return C if w is None else C * w[:, None]


def couples(problem: OutputProblem) -> bool:
    """Whether the model keeps the interaction of outputs."""
    objective = problem.objective
    return (
        1 < objective.m <= COUPLED_OUTPUTS
        and 0 < objective.k * objective.m <= COUPLED_PARAMETERS
        and 4 * objective.n * objective.m * (objective.m + 1) <= min(COUPLED_BYTES, problem.memory)
        and isinstance(objective.features, StoredFeatures)
        and getattr(objective.loss, "shift_invariant", False)
        and hasattr(objective.loss, "hessian")
    )


def hessian(problem: OutputProblem, C: Floats) -> Floats:
    """B (k, k, m) or (k, m, k, m), slightly damped: flat directions must stay bounded."""
    objective = problem.objective
    k, m = objective.k, objective.m
    if C.shape[1] == m:
        B = np.ascontiguousarray(objective.hessian_blocks(C).transpose(1, 2, 0))
        own = np.arange(k), np.arange(k)
        B[own] += problem.ridge + damping(problem, B[own])
        return B
    X = as_matrix(objective.features.array)
    packed = explicit_gamma(X, C, n_threads=objective.features.n_threads).blocks_array()
    pair = np.zeros((m, m), dtype=np.intp)
    pair[np.triu_indices(m)] = np.arange(packed.shape[2])
    pair = np.maximum(pair, pair.T)
    B = np.ascontiguousarray(packed[:, :, pair].transpose(0, 2, 1, 3))
    rows, outputs = np.arange(k)[:, None], np.arange(m)
    own = rows, outputs, rows, outputs
    B[own] += problem.ridge + damping(problem, B[own])
    return B


def damping(problem: OutputProblem, own: Floats) -> Floats:
    """What is added to the curvature (k, m) of the entries, (k, 1).

    In proportion to the row's largest; and a trace of what the loss can have at most, lest a
    perfect fit, where it has none left, sends the next one to infinity.
    """
    added = DAMPING * own.max(axis=1, keepdims=True, initial=0.0)
    smoothness = float(problem.objective.loss.smoothness(problem.objective.m))
    if np.isfinite(smoothness):
        added += FLAT * smoothness * problem.metric[:, None]
    return added


def newton(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimise from P until the certified gap is at most tol times the objective.

    Parameters
    ----------
    problem : OutputProblem
    P : ndarray, (k, m)
    tol : float
    max_iter, at_least : int
        Iterations to make.

    Returns
    -------
    Solution
    """
    run = _Newton(problem, P)
    best, stalled, mark = None, 0, None
    for n_iter in range(max_iter + 1):
        P = run.P
        value, G, objective, gap = run.certify()
        # Near the optimum the objective stops falling, within rounding, before the gap does.
        rounding = ROUNDING * abs(objective)
        stalled += 1
        if best is None or objective < best.objective - rounding or gap < 0.5 * best.gap:
            stalled = 0
            done = gap <= tol * problem.size(objective)
            best = Solution(P, objective, gap, value, G, n_iter, done)
        if (best.converged and n_iter >= at_least) or n_iter == max_iter or stalled == PATIENCE:
            break
        if n_iter % SLOW == 0:
            if mark and worthless(mark, best, WORTH * tol * problem.size(objective)):
                break
            mark = best
        if not P.size or not run.step(G, objective):
            break
    return best._replace(n_iter=n_iter)


def worthless(before: Solution, after: Solution, least: float) -> bool:
    """Whether neither the objective nor the gap has come down by much."""
    return before.objective - after.objective <= least and after.gap > 0.5 * before.gap


class _Point(NamedTuple):
    """Parameters, their outputs and the penalised objective."""

    P: Floats
    O: Floats
    objective: float


class _Newton:
    """The iterate P with its outputs O, and the blocks B of the model with their curvature C."""

    def __init__(self, problem: OutputProblem, P: Floats) -> None:
        self.problem, self.objective = problem, problem.objective
        self.P, self.O = P, self.objective.outputs(P)
        self.C = self.B = None
        self.trail = [(self.P, self.O)]
        shifts = getattr(self.objective.loss, "shift_invariant", False)
        self.centred = shifts and hasattr(problem.penalty, "center")
        # Whether the model has all interactions of outputs, or there are none: then the method
        # converges quadratically and is worth the exact Hessian at every step.
        self.complete = couples(problem) or not shifts
        self.change, self.inner = (0.0, INNER) if self.complete else (CHANGE, ROUGH)
        smoothness = float(self.objective.loss.smoothness(self.objective.m))
        self.bounded = bool(np.isfinite(smoothness))
        self.level, self.largest = 0.0, smoothness * problem.metric

    def value_grad(self, P: Floats, O: Floats) -> tuple[float, Floats, Floats]:
        """F, its gradient and the gradients D of the rows at P with outputs O."""
        objective, problem = self.objective, self.problem
        value, D = objective.loss.value_grad(objective.targets, O, objective.w_array)
        return value + problem.ridge_value(P), objective.gradient(D) + problem.ridge * P, D

    def total(self, P: Floats, O: Floats) -> float:
        objective, problem = self.objective, self.problem
        loss = objective.loss.value(objective.targets, O, objective.w_array)
        return loss + problem.ridge_value(P) + problem.penalty_value(P)

    def certify(self) -> Certificate:
        return self.problem.certificate(self.P, *self.value_grad(self.P, self.O))

    def step(self, G: Floats, objective: float) -> bool:
        """Move on from P, whose gradient and objective are given; False if nothing is gained."""
        C = curvature(self.problem, self.O)
        if self.B is None or np.abs(C - self.C).sum() > self.change * np.abs(self.C).sum():
            self.C, self.B = C, hessian(self.problem, C)
            self.trail = self.trail[-1:]
        while True:
            target = direction(self.problem, self.P, G, self.damped(), self.inner)
            taken = self._search(target, G, objective)
            if taken >= 1.0:
                self.level = self.level / LEVEL if self.level > LOWEST else 0.0
            if taken or self.level >= 1.0 or not self.bounded:
                return taken > 0
            self.level = max(LEVEL * self.level, LOWEST)

    def damped(self) -> Floats:
        """B with a share of the largest curvature that the loss can have.

        Where the loss is all but linear, as that of rows far on the right side is, the model's
        minimum is nowhere near: the share grows while steps towards it fail, and shrinks again.
        """
        if not self.level:
            return self.B
        k, m = self.P.shape
        rows, outputs = np.arange(k)[:, None], np.arange(m)
        own = (rows, rows, outputs) if self.B.ndim == 3 else (rows, outputs, rows, outputs)
        B = self.B.copy()
        B[own] += self.level * self.largest[:, None]
        return B

    def extrapolate(self, objective: float) -> None:
        """Anderson's combination of the last points, if it is better.

        Without the interactions of outputs the model's steps fall short by a constant factor, and
        the points approach the optimum along a line; outputs combine as parameters do.
        """
        weights = anderson([P for P, _ in self.trail])
        P = np.tensordot(weights, [P for P, _ in self.trail[1:]], 1)
        O = np.tensordot(weights, [O for _, O in self.trail[1:]], 1)
        # Zero rows must stay exactly zero, and the point within the ball.
        tau, k = self.problem.tau, self.problem.n_penalized
        dust = P.any(axis=1) & ~self.P.any(axis=1)
        outside = tau is not None and self.problem.penalty.value(P[:k]) > tau
        if dust.any() or outside:
            P[dust] = 0
            if outside:
                P[:k] = self.problem.penalty.project(P[:k], tau)
            O = self.objective.outputs(P)
        if self.total(P, O) < objective:
            self.P, self.O = P, O
        self.trail = [(self.P, self.O)]

    def _search(self, target: Floats, G: Floats, objective: float) -> float:
        """Armijo's rule between P and the minimiser of the model there: the share taken, or 0."""
        problem, move = self.problem, target - self.P
        O_move = self.objective.outputs(move)
        slope = float((G * move).sum())
        slope += problem.penalty_value(target) - problem.penalty_value(self.P)
        rounding = ROUNDING * abs(objective)
        if not slope <= rounding:
            return 0.0
        at = self._ray(target, O_move)
        t, point = 1.0, at(1.0)
        while not point.objective <= objective + ARMIJO * t * min(slope, 0.0) + rounding:
            t *= 0.5
            if t < (SHORTEST if self.bounded else TINIEST):
                return 0.0
            point = at(t)
        # Where the objective fell in a straight line there is no curvature, only damping: go on.
        free = t == 1.0 and self.complete and problem.tau is None
        for _ in range(DOUBLINGS if free else 0):
            if not objective - point.objective > max(-STRAIGHT * t * slope, rounding):
                break
            beyond = at(2 * t)
            if not beyond.objective < point.objective:
                break
            t, point = 2 * t, beyond
        self._accept(point.P, point.O)
        return t

    def _ray(self, target: Floats, O_move: Floats) -> Callable[[float], _Point]:
        """What is found at the share t of the way from P to the target."""
        P, O, move = self.P, self.O, target - self.P

        def at(t: float) -> _Point:
            # A full step ends on the minimiser itself, whose zero rows are exactly zero.
            there = (target if t == 1.0 else P + t * move), O + t * O_move
            return _Point(*there, self.total(*there))

        return at

    def _accept(self, P: Floats, O: Floats) -> None:
        if self.centred:
            # The model has curvature where the loss has none: along o + t 1. The best shift of
            # every row is known, and the loss does not notice it.
            k = self.problem.n_penalized
            shift = np.r_[self.problem.penalty.center(P[:k]), P[k:].mean(axis=1)][:, None]
            P = P - shift
            O -= self.objective.features.outputs(shift)
        self.P, self.O = P, O
        self.trail.append((P, O))
        if len(self.trail) > EXTRAPOLATE:
            self.extrapolate(self.total(P, O))
