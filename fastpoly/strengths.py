"""The default strengths: alpha and alpha_linear that predict rows held out best.

First the linear model alone is fitted with a few ridges. Then one walk down the alphas begins at
that model and goes on while the loss of the rows held out falls.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastpoly.algorithm import Options, train
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.objective import Objective
from fastpoly.path import alpha_grid, largest_alpha, walk
from fastpoly.refit.joint import FIRST_BLOCK, fit_linear_terms
from fastpoly.state import State

Floats = NDArray[np.float64]

RIDGES = (1.0, 10.0, 100.0)
N_ALPHAS, SMALLEST = 8, 1e-3
MANY_ROWS = 2000
FOLDS = 5


def train_default(
    objective: Objective, options: Options, choose_ridge: bool, start: State | None = None
) -> Iterator[State]:
    """The states of a run with the strengths that rows held out choose.

    A run that continues has them already: they are those of its start.
    """
    if start is None or start.alpha is None:
        alpha, ridge = best_strengths(objective, options, choose_ridge)
    else:
        alpha, ridge = start.alpha, start.alpha_linear
    return train(objective.at(alpha, ridge), options, start)


def best_strengths(
    objective: Objective, options: Options, choose_ridge: bool
) -> tuple[float, float]:
    """alpha and alpha_linear by the loss of rows held out."""
    rows, m = objective.rows, objective.problem.m
    many = rows.n_samples > MANY_ROWS
    folds = rows.folds(3 if many else FOLDS, options.seed)[: 1 if many else None]
    most = min(options.n_components, max(FIRST_BLOCK, 2 * m))
    options = replace(options, finish=False, n_components=most)
    pairs = [(objective.on(train), objective.on(test)) for train, test in folds]
    ridge = objective.problem.alpha_linear
    with one_blas_thread():
        if choose_ridge and objective.explicit:
            losses = [sum(_linear_loss(*pair, r) for pair in pairs) for r in RIDGES]
            ridge = RIDGES[int(np.argmin(losses))]
        shares = alpha_grid(1.0, N_ALPHAS, SMALLEST)
        losses = sum(_walk_losses(*pair, ridge, shares, options) for pair in pairs)
        best = shares[int(np.argmin(losses))]
        return best * largest_alpha(objective.at(1.0, ridge), 1e-3) or 1.0, ridge


def _linear_loss(train: Objective, test: Objective, ridge: float) -> float:
    return test.loss(fit_linear_terms(train.at(1.0, ridge), 1e-3))


def _walk_losses(
    train: Objective, test: Objective, ridge: float, shares: Floats, options: Options
) -> Floats:
    """The losses of the rows held out for alphas of these shares of the largest, (a,)."""
    train = train.at(1.0, ridge)
    largest = largest_alpha(train, 1e-3) or 1.0
    losses = np.full(len(shares), np.nan)
    for i, state in walk(train, shares * largest, options):
        if state.stop:
            losses[i:] = test.loss(state.model)
            if i and losses[i] > 1.02 * losses[: i + 1].min():
                break
    return losses
