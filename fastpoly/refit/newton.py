"""Proximal Newton for the convex refit: few iterations, each expensive.

Around P the loss is replaced by its second-order model, and the minimum of

    q(x) = <G, x - P> + 1/2 <x - P, B (x - P)> + alpha Omega(V),    B = the Hessian in groups

is found without touching the n rows again (`fastpoly.kernels.quadratic`). There is one group of all
outputs, or one per output where the loss does not couple them or B would be too large. The step
toward the minimum is as long as the objective allows (Armijo). Dense quadratic features are
ill-conditioned; for them this is far faster than FISTA. `bench/ablation.py` has its parts.
"""

import numpy as np

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.quadratic import Quadratic
from fastpoly.refit.convex import Certificate, Floats, OutputProblem, Solution
from fastpoly.refit.lbfgs import ARMIJO, SHORTEST

STALL_ITERATIONS = 40  # without progress; collinear columns always leave a little to gain
CURVATURE_CHANGE = 0.1  # share by which the curvature changes before an incomplete B is made anew
EPS = float(np.finfo(np.float64).eps)


def newton(
    problem: OutputProblem, P: Floats, *, tol: float, max_iter: int, at_least: int = 0
) -> Solution:
    """Minimize from P, as `fista` does; only the penalized form, and compiled penalties."""
    run = _Newton(problem, P)
    best = mark = None
    for n_iter in range(max_iter + 1):
        P, (value, G, objective, gap) = run.P, run.certify()
        size = problem.size(objective)
        # Near the optimum the objective stops falling, within rounding, before the gap does.
        if best is None or objective < best.objective - rounding(objective) or gap < best.gap:
            best = Solution(P, objective, gap, value, G, n_iter, gap <= tol * size)
        if (best.converged and n_iter >= at_least) or n_iter == max_iter:
            break
        if mark is None or mark.objective - objective > 0.1 * tol * size or gap < 0.5 * mark.gap:
            mark = best
        elif n_iter - mark.n_iter >= STALL_ITERATIONS:
            break
        if not P.size or not run.step(G, objective):
            break
    return best._replace(n_iter=n_iter)


def rounding(objective: float) -> float:
    """The rounding error of an objective of this size."""
    return 4 * float(np.spacing(abs(objective)))


def couples(problem: OutputProblem) -> bool:
    """Whether B, (k m)^2 entries, has the interactions of outputs; l1 and l1/linf need them."""
    # With k m = 900 an iteration takes .6 s, and reaches no more than FISTA does in .1 s.
    (n, k), m, loss = problem.Z.shape, problem.problem.m, problem.problem.loss
    fits = 16 * (k * m) ** 2 <= BLOCK_DOUBLES and 4 * n * m * (m + 1) <= problem.memory
    return fits and loss.shift_invariant and loss.hessian is not None


class _Newton:
    """The iterate P with its outputs O, and B with the curvature C (n, .) of the loss in O.

    B is damped by a share of the largest curvature of the loss, which grows tenfold while steps
    fail: where the loss is nearly linear, the minimum of the undamped model is too far away.
    """

    def __init__(self, problem: OutputProblem, P: Floats) -> None:
        self.problem, self.loss, self.P, self.O = problem, problem.problem.loss, P, problem.Z @ P
        self.C = self.B = None
        self.damping, self.coupled = EPS, couples(problem)
        # Whether B is only part of the Hessian. It then has curvature where all outputs grow alike.
        self.partial = self.loss.shift_invariant and not self.coupled

    def certify(self) -> Certificate:
        """The certificate of P."""
        p, (Y, w) = self.problem, self.problem.targets
        value, D = self.loss.value_grad(Y, self.O, w)
        return p.certificate(self.P, value, p.Z.T @ D, lambda c: self.loss.conjugate(Y, D, c, w))

    def step(self, G: Floats, objective: float) -> bool:
        """Move from P, given its gradient and objective; return False if nothing is gained."""
        Y, w = self.problem.targets
        C = (self.loss.hessian if self.coupled else self.loss.curvature)(Y, self.O, w)
        change = np.inf if self.C is None else np.abs(C - self.C).sum()
        if not self.partial or self.C is None or change > CURVATURE_CHANGE * np.abs(self.C).sum():
            self.C, self.B = C, self.hessian(C)
        while self.damping <= 1.0:
            if self.search(self.target(G), G, objective):
                self.damping = max(0.1 * self.damping, EPS)
                return True
            self.damping *= 10
        return False

    def hessian(self, C: Floats) -> Floats:
        """B (1, k m, k m), or (m, k, k) without interactions of outputs."""
        matrix, m = self.problem.rows.block.design.matrix, self.P.shape[1]
        sums = explicit_gamma(matrix, C, n_threads=self.problem.rows.block.design.n_threads)
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
        problem, move, (Y, w) = self.problem, target - self.P, self.problem.targets
        slope = float((G * move).sum())
        slope += problem.penalty_value(target) - problem.penalty_value(self.P)
        slack = rounding(objective)
        O_move, t = problem.Z @ move, 1.0
        while slope <= slack and t >= SHORTEST:
            # A full step ends on the minimizer itself, whose zero rows are exactly zero.
            P, O = (target if t == 1.0 else self.P + t * move), self.O + t * O_move
            total = self.loss.value(Y, O, w) + problem.ridge_value(P) + problem.penalty_value(P)
            if total <= objective + ARMIJO * t * min(slope, 0.0) + slack:
                self.P, self.O = self.centered(P, O) if self.partial else (P, O)
                return True
            t *= 0.5
        return False

    def centered(self, P: Floats, O: Floats) -> tuple[Floats, Floats]:
        """Rows without their means if that is a gain; the loss does not change."""
        shift = P.mean(axis=1, keepdims=True)
        if self.problem.penalty_value(P - shift) < self.problem.penalty_value(P):
            return P - shift, O - self.problem.Z @ shift
        return P, O
