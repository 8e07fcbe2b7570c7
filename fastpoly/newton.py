"""Proximal Newton for the refit of the output layer: few passes over the data, each a dear one.

Around P the loss is replaced by its second-order model, output by output,

    <G, P+ - P> + 1/2 sum_c (P+ - P)_:c' B_c (P+ - P)_:c,    B_c = S' diag(C_:c) S + ridge

whose penalised minimum is found without touching the n rows again. The step towards it is taken
as far as the objective allows (Armijo). On dense quadratic features, which are ill-conditioned,
this takes far less time than accelerated gradient.
"""

import numpy as np
from numpy.typing import NDArray

from fastpoly.fista import Solution, fista
from fastpoly.kernels.penalties import Penalty
from fastpoly.kernels.quadratic import descend
from fastpoly.problems import OutputProblem, QuadraticProblem

Floats = NDArray[np.float64]

ARMIJO = 1e-4
# Forming B is the dear part: it is kept until the curvature has changed by this share.
CHANGE = 0.1


COUPLING = 1.0


def curvature(problem: OutputProblem, O: Floats) -> Floats:
    """Weighted second derivatives of the loss at the outputs, (n, m)."""
    objective = problem.objective
    if hasattr(objective.loss, "curvature"):
        C = objective.loss.curvature(objective.targets, O, objective.w_array)
    else:
        C = np.full(O.shape, float(objective.loss.smoothness(objective.m)))
        C = C if objective.w_array is None else C * objective.w_array[:, None]
    return C * COUPLING if getattr(objective.loss, "shift_invariant", False) else C


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


def newton(problem: OutputProblem, P: Floats, *, tol: float, max_iter: int) -> Solution:
    """Minimise from P until the certified gap is at most tol times the objective."""
    objective = problem.objective
    loss, Y, w = objective.loss, objective.targets, objective.w_array
    O = objective.outputs(P)
    centred = (
        problem.n_penalised == len(P)
        and getattr(loss, "shift_invariant", False)
        and hasattr(problem.penalty, "center")
    )
    best = B = None
    stalled = 0
    for n_iter in range(max_iter + 1):
        value, D = loss.value_grad(Y, O, w)
        G = objective.gradient(D) + problem.ridge * P
        value += problem.ridge_value(P)
        _, _, total, gap = problem.certificate(P, value, G, D)
        done = gap <= tol * abs(total)
        best = Solution(P, total, gap, value, G, n_iter, done)
        if done or n_iter == max_iter or stalled == 3:
            break
        C_now = curvature(problem, O)
        if B is None or np.abs(C_now - C).sum() > CHANGE * C.sum():
            C, B = C_now, hessian(problem, C_now)
        target = direction(problem, P, G, B, 1e-3)
        move = target - P
        O_move = objective.outputs(move)
        # The model's first-order decrease, penalty included: negative unless P is optimal.
        slope = float((G * move).sum()) + problem.penalty_value(target) - problem.penalty_value(P)
        if not slope < 0:
            break
        t = 1.0
        while t > 1e-8:
            trial = P + t * move
            reached = loss.value(Y, O + t * O_move, w) + problem.ridge_value(trial)
            reached += problem.penalty_value(trial)
            if reached <= total + ARMIJO * t * slope:
                break
            t *= 0.5
        stalled = stalled + 1 if total - reached <= 1e-14 * abs(total) else 0
        # A full step ends on the minimiser itself, whose zero rows are exactly zero.
        P = target if t == 1.0 else P + t * move
        O += t * O_move
        if centred:
            # The model has curvature where the loss has none: along o + t 1. The best shift of
            # every row is known, and the outputs it adds are the same for all c.
            shift = problem.penalty.center(P)[:, None]
            P = P - shift
            O -= objective.outputs(np.broadcast_to(shift, P.shape))
    return best
