"""Proximal Newton for the refit of the output layer: few passes over the data, each a costly one.

Around P the loss is replaced by its second-order model

    <G, P+ - P> + 1/2 <P+ - P, B (P+ - P)>,    B_c = S' diag(C_:c) S + ridge for every output c

(with the blocks between outputs too where few outputs interact). Its penalized minimum is found
without touching the n rows again (`newton_step`), and the step towards it is taken as far as the
objective allows (Armijo). On dense quadratic features, which are ill-conditioned, this takes far
less time than accelerated gradient. `bench/ablation.py` measures what each mechanism is worth.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.features import StoredFeatures
from fastpoly.kernels.matrix import as_matrix
from fastpoly.refit.fista import Certificate, Solution
from fastpoly.refit.lbfgs import ARMIJO, SHORTEST
from fastpoly.refit.newton_step import POINTS, anderson, direction
from fastpoly.refit.output_problem import OutputProblem

Floats = NDArray[np.float64]

# The figures are those of bench/README.md, "Ablation of the output refit".

# Iterations that together must halve the gap or gain a tenth of the tolerance. Where columns are
# collinear there is always something left to gain, but next to nothing per step. With 3, four of
# the 24 refits stop before they are done.
PATIENCE = 20
# Most outputs, and most parameters k m, of a model with the interactions of outputs, whose B has
# (k m)^2 entries. Without them l1 and l1/linf are mostly not finished in time. With them, 26
# outputs take 5 times as long for l1/l2, and l1 and l1/linf are finished.
COUPLED_OUTPUTS = 16
COUPLED_PARAMETERS = 1200
# Without these interactions B is kept until the curvature has changed by this share: 5 times
# faster for 26 outputs than a new B every step.
CHANGE = 0.1
# Added to B, as a share of each row's largest curvature. No influence on time; without it flat
# directions are unbounded where there is no penalty.
DAMPING = 1e-10


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
        and 4 * objective.n * objective.m * (objective.m + 1) <= problem.memory
        and isinstance(objective.features, StoredFeatures)
        and getattr(objective.loss, "shift_invariant", False)
        and hasattr(objective.loss, "hessian")
    )


def centers(problem: OutputProblem) -> bool:
    """Whether the loss does not notice a shift of a row, and the penalty knows the best one."""
    shifts = getattr(problem.objective.loss, "shift_invariant", False)
    return shifts and hasattr(problem.penalty, "center")


def hessian(problem: OutputProblem, C: Floats) -> Floats:
    """B (k, k, m) or (k, m, k, m), slightly damped."""
    objective = problem.objective
    m = objective.m
    if C.shape[1] == m:
        B = np.ascontiguousarray(objective.hessian_blocks(C).transpose(1, 2, 0))
    else:
        X = as_matrix(objective.features.array)
        packed = explicit_gamma(X, C, n_threads=objective.features.n_threads).blocks_array()
        pair = np.zeros((m, m), dtype=np.intp)
        pair[np.triu_indices(m)] = np.arange(packed.shape[2])
        pair = np.maximum(pair, pair.T)
        B = np.ascontiguousarray(packed[:, :, pair].transpose(0, 2, 1, 3))
    own = diagonal(B)
    B[own] += problem.ridge + DAMPING * B[own].max(axis=1, keepdims=True, initial=0.0)
    return B


def diagonal(B: Floats) -> tuple[NDArray[np.intp], ...]:
    """Index of the second derivatives of the entries, (k, m), in B."""
    r, c = np.arange(len(B))[:, None], np.arange(B.shape[-1])
    return (r, r, c) if B.ndim == 3 else (r, c, r, c)


def newton(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimize from P until the certified gap is at most tol times the objective.

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
    best = mark = None
    for n_iter in range(max_iter + 1):
        P = run.P
        value, G, objective, gap = run.certify()
        size = problem.size(objective)
        # Near the optimum the objective stops falling, within rounding, before the gap does.
        if best is None or objective < best.objective - rounding(objective) or gap < best.gap:
            best = Solution(P, objective, gap, value, G, n_iter, gap <= tol * size)
        if (best.converged and n_iter >= at_least) or n_iter == max_iter:
            break
        if mark is None or mark.objective - objective > 0.1 * tol * size or gap < 0.5 * mark.gap:
            mark = best
        elif n_iter - mark.n_iter >= PATIENCE:
            break
        if not P.size or not run.step(G, objective):
            break
    return best._replace(n_iter=n_iter)


def rounding(objective: float) -> float:
    """How exactly an objective of this size is known."""
    return 4 * float(np.spacing(abs(objective)))


class _Newton:
    """The iterate P with its outputs O, and the blocks B of the model with their curvature C."""

    def __init__(self, problem: OutputProblem, P: Floats) -> None:
        self.problem, self.objective = problem, problem.objective
        self.P, self.O = P, self.objective.outputs(P)
        self.C = self.B = None
        self.trail = [P]
        smoothness = float(self.objective.loss.smoothness(self.objective.m))
        self.level, self.largest = 0.0, smoothness * problem.metric[:, None]
        self.centered = centers(problem)
        shifts = getattr(self.objective.loss, "shift_invariant", False)
        # Where the model has all interactions of outputs, or there are none, the method converges
        # quadratically and is worth the exact Hessian at every step.
        self.change = CHANGE if shifts and not couples(problem) else 0.0

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
            t = self.search(direction(self.problem, self.P, G, self.damped()), G, objective)
            if t == 1.0:
                self.level /= 10
            if t or self.level >= 1.0 or not np.isfinite(self.largest).all():
                return t > 0
            self.level = 10 * self.level or SHORTEST

    def damped(self) -> Floats:
        """B with a share of the largest curvature that the loss can have.

        Where the loss is nearly linear, as that of rows far on the right side is, the model has
        its minimum nowhere near: the share grows while steps fail, and shrinks again.
        """
        if not self.level:
            return self.B
        B = self.B.copy()
        B[diagonal(B)] += self.level * self.largest
        return B

    def search(self, target: Floats, G: Floats, objective: float) -> float:
        """Armijo's rule on the way from P to the target: the share taken, or 0."""
        problem, move = self.problem, target - self.P
        slope = float((G * move).sum())
        slope += problem.penalty_value(target) - problem.penalty_value(self.P)
        slack = rounding(objective)
        if not slope <= slack:
            return 0.0
        O_move, t = self.objective.outputs(move), 1.0
        while t >= SHORTEST:
            # A full step ends on the minimizer itself, whose zero rows are exactly zero.
            P, O = (target if t == 1.0 else self.P + t * move), self.O + t * O_move
            if self.total(P, O) <= objective + ARMIJO * t * min(slope, 0.0) + slack:
                self.accept(P, O)
                return t
            t *= 0.5
        return 0.0

    def accept(self, P: Floats, O: Floats) -> None:
        """Move to P, with every row shifted by what the loss does not notice."""
        if self.centered:
            # The model has curvature where the loss has none: along o + t 1.
            k = self.problem.n_penalized
            shift = np.r_[self.problem.penalty.center(P[:k]), P[k:].mean(axis=1)][:, None]
            P = P - shift
            O -= self.objective.features.outputs(shift)
        self.P, self.O = P, O
        if self.change and self.problem.tau is None:
            self.trail.append(P)
            if len(self.trail) > POINTS:
                self.extrapolate()

    def extrapolate(self) -> None:
        """Move to Anderson's combination of the last points, if it is better.

        Without the interactions of outputs the steps fall short by a constant factor, and the
        points approach the optimum along a line.
        """
        P = np.tensordot(anderson(self.trail), self.trail[1:], 1)
        P[~self.P.any(axis=1)] = 0  # zero rows stay exactly zero
        O = self.objective.outputs(P)
        if self.total(P, O) < self.total(self.P, self.O):
            self.P, self.O = P, O
        self.trail = [self.P]
