"""How a round of Algorithm 1 uses the chosen vectors: one class for each `refit`.

A refit has three methods, each of which returns a model with unit vectors H:

    first(model)              before the first round: lower-order terms, or another problem's model
    advance(state, chosen)    append the chosen vectors, refit, drop what became zero
    polish(state)             the same vectors, refitted as accurately as the tolerance asks for

It also says how many vectors a round should add (`block`), what a round costs approximately
(`flops`), and whether it is `corrective`, which means that it refits V, so that an inaccurate V is
worth a polish.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.features import RowBlocks, StoredFeatures
from fastpoly.objective import Objective
from fastpoly.refit.output import Given, solve, solve_sums
from fastpoly.refit.plain_step import plain_step
from fastpoly.refit.pruning import merge_parallel
from fastpoly.rows.design import Design
from fastpoly.selection import Selection
from fastpoly.state import Model, State

Floats = NDArray[np.float64]

# Largest relative gap of a refit, for models far from the optimum; the true error is far smaller.
LOOSEST_REFIT_TOL = 5e-2


class Activations:
    """The stored activations of a growing H, while they fit the budget.

    A stored column is always computed on its own, so that a run that restarts from a state gets the
    same bits as the run that added the column.
    """

    def __init__(self, design: Design, memory: float) -> None:
        self.design, self.memory = design, memory
        self.H = np.empty((0, self.design.n_features))
        self.A = np.empty((self.design.n_samples, 0))

    def at(self, H: Floats) -> RowBlocks:
        """Activations on H: stored, or recomputed in every pass if there are too many."""
        n, k = self.design.n_samples, len(H)
        if 8.0 * n * k > self.memory:
            self.H, self.A = self.H[:0], self.A[:, :0]
            return self.design.features(H)
        A = np.empty((n, k))
        have = 0
        for r, h in enumerate(H):
            while have < len(self.H) and not np.array_equal(self.H[have], h):
                have += 1
            if have < len(self.H):
                A[:, r] = self.A[:, have]
            else:
                A[:, r] = self.design.activations(h[None])[:, 0]
        self.H, self.A = H, A
        return StoredFeatures(A, self.design.n_threads)


class PaperRefit:
    """The base of refits that add one vector per round, which costs no more than finding it."""

    corrective = True

    def block(self, k: int) -> int:
        return 1

    def flops(self, state: State) -> float:
        return 0.0


class OutputRefit(PaperRefit):
    """The paper's fully corrective step: refit V on all vectors, a convex problem."""

    def __init__(
        self, objective: Objective, tol: float, max_iter: int, solver: str, memory: float
    ) -> None:
        self.objective, self.problem = objective, objective.problem
        self.tol, self.max_iter, self.solver, self.memory = tol, max_iter, solver, memory
        block = objective.rows.block
        self.activations = None if block is None else Activations(block.design, memory)

    def first(self, model: Model) -> Model:
        return self._refitted(model, self.tol, self.max_iter)

    def polish(self, state: State) -> Model:
        return self.polished(state.model)

    def polished(self, model: Model) -> Model:
        """The model with V refitted as accurately as the tolerance asks for."""
        return self._refitted(model, self.tol, self.max_iter)

    def advance(self, state: State, chosen: Selection) -> Model:
        zeros = np.zeros((len(chosen.H), self.problem.m))
        model = state.model.append(chosen.H, zeros)
        model = self._refitted(model, self.refit_tol(state), self.max_iter)
        return merged(self.objective, model)

    def refit_tol(self, state: State) -> float:
        """The tolerance of the refit after this state; it is looser far from the optimum."""
        problem = self.problem
        if problem.tau is not None:
            excess = state.gap_found / max(self.objective.size(state.objective), 1e-300)
        else:
            excess = state.violation / problem.alpha - 1 if problem.alpha else 1.0
        return float(np.clip(0.1 * excess, 0.1 * self.tol, max(self.tol, LOOSEST_REFIT_TOL)))

    def _refitted(self, model: Model, tol: float, max_iter: int) -> Model:
        if not len(model.H) and not self.objective.explicit:
            return model
        if self.activations is None:
            fit = solve_sums(self.objective, model, solver=self.solver, tol=tol, max_iter=max_iter)
        else:
            block = self.objective.rows.block
            given = Given(self.problem, block.objective.targets, block.w, self.objective.small)
            fit = solve(
                given, self.activations.at(model.H), model.V, model.intercept,
                model.linear, linear=block.design.linear, solver=self.solver, tol=tol,
                max_iter=max_iter, memory=self.memory,
            )  # fmt: skip
        return Model(model.H, fit.V, fit.intercept, fit.linear).nonzero()


class StepRefit(PaperRefit):
    """The plain conditional gradient step: it only chooses a length. Lower-order terms stay."""

    corrective = False

    def __init__(self, objective: Objective, output: OutputRefit) -> None:
        self.objective, self.output = objective, output

    def first(self, model: Model) -> Model:
        return self.output.first(model)

    def polish(self, state: State) -> Model:
        return state.model

    def advance(self, state: State, chosen: Selection) -> Model:
        model = plain_step(self.objective, state.model, chosen.H[0], chosen.Q[0])
        return merged(self.objective, model.nonzero())


def merged(objective: Objective, model: Model) -> Model:
    """The model with nearly parallel basis vectors merged, unless the objective rises."""
    fewer: Any = merge_parallel(model.H, model.V)
    if fewer is None:
        return model
    new = model._replace(H=fewer[1], V=fewer[2])
    return new if objective.value(new) <= objective.value(model) else model
