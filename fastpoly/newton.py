"""Proximal Newton for the refit of the output layer: few passes over the data, each a dear one.

Around P the loss is replaced by its second-order model, output by output,

    <G, P+ - P> + 1/2 sum_c (P+ - P)_:c' B_c (P+ - P)_:c,    B_c = S' diag(C_:c) S + ridge

whose penalised minimum is found without touching the n rows again. The step towards it is taken
as far as the objective allows (Armijo). On dense quadratic features, which are ill-conditioned,
this takes far less time than accelerated gradient.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.fista import Certificate, Solution, fista
from fastpoly.kernels.penalties import Penalty
from fastpoly.kernels.quadratic import descend
from fastpoly.problems import OutputProblem, QuadraticProblem

Floats = NDArray[np.float64]

ARMIJO = 1e-4
# Forming B is the dear part: it is kept until the curvature has changed by this share.
CHANGE = 0.1
# Accuracy of the model's minimum: the share of the first sweep's movement that is left.
INNER = 1e-3


def curvature(problem: OutputProblem, O: Floats) -> Floats:
    """Weighted second derivatives of the loss at the outputs, (n, m)."""
    objective = problem.objective
    if hasattr(objective.loss, "curvature"):
        return objective.loss.curvature(objective.targets, O, objective.w_array)
    C = np.full(O.shape, float(objective.loss.smoothness(objective.m)))
    return C if objective.w_array is None else C * objective.w_array[:, None]


def hessian(problem: OutputProblem, C: Floats) -> Floats:
    """B (m, k, k), slightly damped: directions without curvature must stay bounded."""
    B = problem.objective.hessian_blocks(C)
    rows = np.arange(B.shape[1])
    B[:, rows, rows] += problem.ridge.T + 1e-10 * B.max(initial=0.0)
    return B


def direction(problem: OutputProblem, P: Floats, G: Floats, B: Floats, tol: float) -> Floats:
    """The minimiser of the penalised model around P."""
    if problem.tau is None and isinstance(problem.penalty, Penalty):
        target = P.copy()
        descend(
            problem.penalty,
            np.ascontiguousarray(B.transpose(1, 2, 0)),
            target,
            G.copy(),
            problem.alpha * problem.weights,
            tol,
            2000,
        )
        return target
    model = QuadraticProblem(problem, P, G, B)
    return fista(model, P, tol=tol, max_iter=500).P


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
    for n_iter in range(max_iter + 1):
        value, G, objective, gap = run.certify()
        done = gap <= tol * abs(objective)
        if (done and n_iter >= at_least) or n_iter == max_iter or not run.step(G, objective):
            break
    return Solution(run.P, objective, gap, value, G, n_iter, done)


class _Newton:
    """The iterate P with its outputs O, and the blocks B of the model with their curvature C."""

    def __init__(self, problem: OutputProblem, P: Floats) -> None:
        self.problem, self.objective = problem, problem.objective
        self.P, self.O = P, self.objective.outputs(P)
        self.C = self.B = None
        loss, penalty = self.objective.loss, problem.penalty
        self.centred = (
            problem.n_penalised == len(P)
            and getattr(loss, "shift_invariant", False)
            and hasattr(penalty, "center")
        )

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
        if self.B is None or np.abs(C - self.C).sum() > CHANGE * self.C.sum():
            self.C, self.B = C, hessian(self.problem, C)
        target = direction(self.problem, self.P, G, self.B, INNER)
        return self._search(target, G, objective)

    def _search(self, target: Floats, G: Floats, objective: float) -> bool:
        """Armijo's rule between P and the minimiser of the model there."""
        problem, move = self.problem, target - self.P
        O_move = self.objective.outputs(move)
        slope = float((G * move).sum())
        slope += problem.penalty_value(target) - problem.penalty_value(self.P)
        if not slope < 0:
            return False
        t = 1.0
        while t > 1e-8:
            # A full step ends on the minimiser itself, whose zero rows are exactly zero.
            P = target if t == 1.0 else self.P + t * move
            O = self.O + t * O_move
            reached = self.total(P, O)
            if reached <= objective + ARMIJO * t * slope:
                self._accept(P, O)
                return objective - reached > 1e-15 * abs(objective)
            t *= 0.5
        return False

    def _accept(self, P: Floats, O: Floats) -> None:
        if self.centred:
            # The model has curvature where the loss has none: along o + t 1. The best shift of
            # every row is known, and the loss does not notice it.
            shift = self.problem.penalty.center(P)
            P = P - shift[:, None]
            O -= self.objective.outputs(np.tile(shift[:, None], P.shape[1]))
        self.P, self.O = P, O
