"""Proximal Newton for the refit of the output layer: few passes over the data, each expensive.

Around P the loss is replaced by its second-order model

    <G, P+ - P> + 1/2 <P+ - P, B (P+ - P)>,    B = the Hessian, or its blocks of single outputs

Its penalized minimum is found without touching the n rows again (`newton_step`). The step toward
it is as long as the objective allows (Armijo). Dense quadratic features are ill-conditioned; for
them this is far faster than accelerated gradient. `bench/ablation.py` measures each mechanism.
"""

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.features import StoredFeatures
from fastpoly.kernels.matrix import as_matrix
from fastpoly.refit.fista import PATIENCE, Certificate, Solution
from fastpoly.refit.lbfgs import ARMIJO, SHORTEST
from fastpoly.refit.newton_step import minimize_model
from fastpoly.refit.output_problem import Floats, OutputProblem

# B without interactions of outputs is kept until the curvature has changed by this share. That is
# three times faster.
CHANGE = 0.1


def newton(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimize from P, as `fista` does; only the penalized form, and compiled penalties."""
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
        elif n_iter - mark.n_iter >= 4 * PATIENCE:
            break  # collinear columns always leave a little to gain
        if not P.size or not run.step(G, objective):
            break
    return best._replace(n_iter=n_iter)


def rounding(objective: float) -> float:
    """The rounding error of an objective of this size."""
    return 4 * float(np.spacing(abs(objective)))


def couples(problem: OutputProblem) -> bool:
    """Whether B, (k m)^2 entries, keeps the interactions of outputs; l1 and l1/linf need them."""
    objective = problem.objective
    return (
        0 < (objective.k * objective.m) ** 2 <= BLOCK_DOUBLES
        and 4 * objective.n * objective.m * (objective.m + 1) <= problem.memory
        and isinstance(objective.features, StoredFeatures)
        and objective.loss.shift_invariant
        and objective.loss.hessian is not None
    )


class _Newton:
    """The iterate P with its outputs O, and B with the curvature C from which it is made.

    C has the weighted second derivatives of the loss in the outputs of every row: (n, m), or
    (n, m (m + 1) / 2) with the interactions.

    B is damped by a share of the largest curvature of the loss, which grows tenfold while steps
    fail: where the loss is nearly linear, the minimum of the undamped model is too far away.
    """

    def __init__(self, problem: OutputProblem, P: Floats) -> None:
        self.problem, self.objective = problem, problem.objective
        self.P, self.O = P, self.objective.outputs(P)
        self.C = self.B = None
        self.damping, self.coupled = np.finfo(np.float64).eps, couples(problem)
        # Whether B is only part of the Hessian. It then has curvature where all outputs grow alike.
        self.shifts = self.objective.loss.shift_invariant and not self.coupled

    def certify(self) -> Certificate:
        """The certificate of P."""
        objective, problem, P = self.objective, self.problem, self.P
        value, D = objective.loss.value_grad(objective.targets, self.O, objective.w_array)
        G = objective.gradient(D) + problem.ridge * P
        return problem.certificate(P, value + problem.ridge_value(P), G, D)

    def step(self, G: Floats, objective: float) -> bool:
        """Move from P, given its gradient and objective; return False if nothing is gained."""
        loss, Y, w = self.objective.loss, self.objective.targets, self.objective.w_array
        C = (loss.hessian if self.coupled else loss.curvature)(Y, self.O, w)
        kept = self.shifts and self.C is not None
        if not kept or np.abs(C - self.C).sum() > CHANGE * np.abs(self.C).sum():
            self.C, self.B = C, self.hessian(C)
        while self.damping <= 1.0:
            t = self.search(minimize_model(self.problem, self.P, G, self.damped()), G, objective)
            if t:
                self.damping = max(0.1 * self.damping, np.finfo(np.float64).eps)
                return True
            self.damping *= 10
        return False

    def hessian(self, C: Floats) -> Floats:
        """B (1, k m, k m), or (m, k, k) without interactions of outputs."""
        objective = self.objective
        if not self.coupled:
            return objective.hessian_blocks(C)
        m, X = objective.m, as_matrix(objective.features.array)
        packed = explicit_gamma(X, C, n_threads=objective.features.n_threads).blocks_array()
        pair = np.zeros((m, m), dtype=np.intp)
        pair[np.triu_indices(m)] = np.arange(packed.shape[2])
        B = packed[:, :, np.maximum(pair, pair.T)].transpose(0, 2, 1, 3)
        return B.reshape(1, B.shape[0] * m, -1)

    def damped(self) -> Floats:
        """B with the ridge and some damping."""
        problem, B = self.problem, self.B.copy()
        i = np.arange(B.shape[1])
        row = i // (len(i) // len(self.P))
        bound = float(self.objective.loss.smoothness(self.objective.m)) * problem.metric[row]
        bound = np.where(np.isfinite(bound), bound, B[:, i, i])
        B[:, i, i] += problem.ridge[row, 0] + self.damping * bound
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
            total = self.objective.loss.value(self.objective.targets, O, self.objective.w_array)
            total += problem.ridge_value(P) + problem.penalty_value(P)
            if total <= objective + ARMIJO * t * min(slope, 0.0) + slack:
                self.P, self.O = P, O
                if self.shifts:
                    self.center()
                return t
            t *= 0.5
        return 0.0

    def center(self) -> None:
        """Subtract its mean from every row if that is a gain; the loss does not change."""
        shift = self.P.mean(axis=1, keepdims=True)
        if self.problem.penalty_value(self.P - shift) < self.problem.penalty_value(self.P):
            self.P = self.P - shift
            self.O = self.O - self.objective.features.outputs(shift)
