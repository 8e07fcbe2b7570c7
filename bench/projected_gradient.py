"""Projected gradient from random basis vectors, which the paper compares its algorithm with.

    minimize  sum_i l(y_i, V's(H x_i)) + alpha Omega(V)   over V and |h_r| <= 1

by FISTA with a line search and restarts. V and H have separate step lengths, 1 / (L c), where c is
the scale of the curvature in the row of V or of H.
"""

import numpy as np

from fastpoly import Design
from fastpoly.kernels.joint import JointObjective
from fastpoly.problem import Problem

LOOK_BACK = 5
LEAST_GAIN = 1e-3  # share of the objective; a smaller gain in LOOK_BACK steps ends the descent


def descend(
    design: Design, problem: Problem, Y: np.ndarray, H: np.ndarray, V: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The model after at most `steps` steps from (H, V); its objective is not above the first."""
    F = JointObjective(
        design.matrix, problem.loss, Y, problem.m, activation=design.activation,
        n_threads=design.n_threads,
    )  # fmt: skip
    squares = (design.activations(H) ** 2).sum(axis=0)[:, None]
    scales = squares, 4 * squares * (V**2).sum(axis=1, keepdims=True) + 1e-9 * squares
    at = best = previous = V, H
    reached = [F.value_grad(H, V)[0] + problem.penalty_value(V)]
    momentum, L = 1.0, float(problem.loss.smoothness(problem.m))
    for _ in range(steps):
        value, G_H, G_V, *_ = F.value_grad(at[1], at[0])
        while True:
            new = step(problem, at, (G_V, G_H), scales, L)
            moves = [a - b for a, b in zip(new, at, strict=True)]
            linear = sum(np.vdot(g, move) for g, move in zip((G_V, G_H), moves, strict=True))
            bend = sum((c * move**2).sum() for c, move in zip(scales, moves, strict=True))
            after = F.value_grad(new[1], new[0], basis=False)[0]
            if after <= value + linear + L / 2 * bend + 1e-12 * abs(value):
                break
            L *= 2
        L *= 0.9
        objective = after + problem.penalty_value(new[0])
        if objective > reached[-1]:
            if momentum == 1.0:
                break
            momentum, at, previous = 1.0, best, best
            continue
        best = new
        reached.append(objective)
        if (
            len(reached) > LOOK_BACK
            and reached[-LOOK_BACK - 1] - objective <= LEAST_GAIN * objective
        ):
            break
        after_that = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        share, momentum = (momentum - 1) / after_that, after_that
        at = tuple(a + share * (a - b) for a, b in zip(new, previous, strict=True))
        at, previous = (at[0], unit_ball(at[1])), new
    return best[1], best[0]


def step(problem: Problem, at: tuple, gradients: tuple, scales: tuple, L: float) -> tuple:
    """The proximal step in V and the projected step in H."""
    lengths = [1 / (L * np.maximum(c, 1e-300)) for c in scales]
    V, H = (a - t * g for a, g, t in zip(at, gradients, lengths, strict=True))
    return problem.penalty.prox(V, problem.alpha, lengths[0][:, 0]), unit_ball(H)


def unit_ball(H: np.ndarray) -> np.ndarray:
    return H / np.maximum(np.linalg.norm(H, axis=1, keepdims=True), 1.0)
