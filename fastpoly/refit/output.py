"""The refit of the output layer alone: a convex problem, with a certificate.

`refit_output` fits V on any activations. `OutputRefit` and `StepRefit` are rounds of Algorithm 1.
The three classes of refits (the third is `JointRefit`) have the same methods, which return models
with unit vectors H:

    first(model)              before the first round: lower-order terms, or another problem's model
    advance(state, chosen)    append the chosen vectors, refit, drop what became zero
    polish(state)             the same vectors, refitted as accurately as the tolerance asks for

They also say how many vectors a round should add (`block`), what a round costs approximately
(`flops`), the iterations so far (`spent`), and whether they refit V (`corrective`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from fastpoly.kernels import checks
from fastpoly.kernels.checks import Floats
from fastpoly.kernels.losses import complete_loss
from fastpoly.kernels.matrix import as_matrix
from fastpoly.objective import Objective
from fastpoly.problem import Problem, check_choice, resolve_loss
from fastpoly.refit.convex import OutputProblem, Solution, fista, newton
from fastpoly.refit.joint import merge_parallel
from fastpoly.rows import Rows
from fastpoly.rows.block import Block, Targets
from fastpoly.rows.design import Design, take_rows
from fastpoly.selection import Selection
from fastpoly.state import Model, State

SOLVERS = ("auto", "fista", "newton")
# Number of linear terms up to which "auto" takes Newton's method. Measured with n = 20000 and
# m = 4: fista is 7 times faster with 200 well-conditioned terms, and 2.5 times slower with 36
# correlated ones. Newton's method takes four times as many; sparse rows are then made dense.
AUTO_LINEAR = 64
# Largest relative gap of a refit, for models far from the optimum; the true error is far smaller.
LOOSEST_REFIT_TOL = 5e-2


class Refit(NamedTuple):
    """A refitted output layer with its certificate, recomputed at the returned point.

    Rows that no penalty bounds (the intercept, linear weights with alpha_linear = 0, all rows with
    alpha = 0) enter the gap as if their optimum were no farther away than 1 + their norm, in units
    of their activations: with such rows, and nearly collinear features, the error can be larger.
    """

    V: Floats  # (k, m)
    intercept: Floats  # (m,), zero without explicit lower-order terms
    linear: Floats | None  # (d, m)
    objective: float  # loss plus penalty (not in the constrained form), ridge included
    loss: float
    gap: float  # upper bound on objective - minimum
    n_iter: int
    converged: bool


def refit_output(
    A: ArrayLike,
    y: ArrayLike,
    *,
    loss: Any = "logistic",
    penalty: Any = "l1/l2",
    alpha: float | None = None,
    tau: float | None = None,
    tol: float = 1e-4,
    solver: str = "auto",
    max_iter: int = 1000,
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
    start: ArrayLike | None = None,
    linear: Any = None,
    alpha_linear: float = 1.0,
    n_threads: int | None = 1,
) -> Refit:
    """Fit the output layer V on fixed activations: a convex problem.

    minimize  sum_i w_i l(y_i, V'a_i) + alpha Omega(V)    or  s.t. Omega(V) <= tau

    Parameters
    ----------
    A : array-like, (n, k)
        Activations, or any dense matrix.
    y : array-like
        Targets in the form of the loss: class codes (n,), signs or numbers (n, m).
    loss, penalty : str or object
    alpha, tau : float
        Strength of the penalty, or radius of the ball; alpha = 1 when neither is given. Losses are
        sums over the rows, not means, and alpha is on that scale.
    tol : float
        Stop when the certified gap is at most tol times the objective (for a perfect fit, times a
        millionth of the loss without a model, if that is more).
    solver : {"auto", "fista", "newton"}
        "newton" needs alpha, a compiled penalty, a loss with curvature, and few linear terms;
        "auto" takes it where it can.
    max_iter : int
        Largest number of iterations; iterations of Newton's method cost more.
    sample_weight : array-like, (n,), optional
    n_outputs : int, optional
        Number of classes, if y does not show it.
    start : array-like, (k, m), optional
        Output layer to start from.
    linear : array-like or scipy sparse matrix or array, (n, d), optional
        Features for which an intercept and linear weights are fitted, too, the latter with a ridge
        penalty alpha_linear / 2 |W|^2.
    alpha_linear : float
    n_threads : int or None

    Returns
    -------
    Refit

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.refit import refit_output
    >>> rng = np.random.default_rng(0)
    >>> A = rng.random((100, 5))
    >>> y = (A[:, 0] > A[:, 1]).astype(int)
    >>> fit = refit_output(A, y, alpha=0.1, tol=1e-6)
    >>> fit.V.shape, bool(fit.gap <= 1e-6 * fit.objective)
    ((5, 2), True)
    """
    tol = checks.as_positive(tol, "tol")
    check_choice(solver, "solver", SOLVERS)
    A = checks.as_float_array(A, "A", (None, None))
    n, k = A.shape
    loss = complete_loss(resolve_loss(loss, y))
    targets, m = Targets.of(loss, y, n_outputs)
    if len(targets.values) != n:
        raise ValueError(f"y has {len(targets.values)} samples, A has {n}")
    if not n:
        raise ValueError("there are no samples: A and y are empty")
    w = checks.as_weights(sample_weight, "sample_weight", n, some=True)
    problem = Problem.of(loss, penalty, m, alpha=alpha, tau=tau, alpha_linear=alpha_linear)
    V = np.zeros((k, m)) if start is None else checks.as_float_array(start, "start", (k, m))
    max_iter = checks.as_count(max_iter, "max_iter")
    if not k and linear is None:  # nothing to fit
        value = float(loss.value(targets.by_row(), np.zeros((n, m)), w))
        return Refit(V, np.zeros(m), None, value, value, 0.0, 0, True)
    Z = A
    if linear is not None:
        X = as_matrix(linear)
        if X.n != n:
            raise ValueError(f"linear has {X.n} rows, A has {n}")
        Z = stack_features(A, take_rows(X, np.arange(n)))
    rows = rows_of_features(Z, n_threads, targets, loss, m, w)
    convex = OutputProblem(Objective(problem, rows), k, stored=rows)
    return solve(convex, Model(A[:0], V, np.zeros(m), None), solver, tol, max_iter, at_least=0)


def stack_features(A: Floats, X: Any) -> Any:
    """[A | 1 | X], sparse where X is sparse and wide."""
    ones = np.ones((len(A), 1))
    if scipy.sparse.issparse(X) and X.shape[1] > 4 * AUTO_LINEAR:
        return scipy.sparse.hstack([A, ones, X], "csr")
    return np.hstack([A, ones, X.toarray() if scipy.sparse.issparse(X) else X])


def rows_of_features(Z: Any, n_threads: int | None, *targets: Any) -> Rows:
    """Stored activations as the features of a linear model."""
    return Rows.of_block(Block(Design(Z, fit_lower="explicit", n_threads=n_threads), *targets))


def solve(
    convex: OutputProblem, model: Model, solver: str, tol: float, max_iter: int, at_least: int = 1
) -> Refit:
    """Refit from a model, with at least the given number of iterations."""
    problem, k, (_, V, intercept, linear) = convex.problem, convex.k, model
    P = np.zeros((len(convex.ridge), problem.m))
    P[:k] = V if problem.tau is None or not k else problem.penalty.project(V, problem.tau)
    if linear is not None:
        P[k], P[k + 1 :] = intercept, linear
    found = choose_solver(convex, solver)(convex, P, tol=tol, max_iter=max_iter, at_least=at_least)
    P = found.P.copy()
    loss = found.value - convex.ridge_value(P)
    return Refit(*convex.split(P), found.objective, loss, found.gap, found.n_iter, found.converged)


def choose_solver(convex: OutputProblem, solver: str) -> Callable[..., Solution]:
    """The named solver, or for "auto" the faster one: Newton's method where it is cheap."""
    if solver == "fista":
        return fista
    obstacle = newton_obstacle(convex)
    if solver == "newton" and obstacle:
        raise ValueError(f'solver="newton" {obstacle}; use solver="fista"')
    slow = solver == "auto" and convex.n_linear > AUTO_LINEAR
    return fista if obstacle or slow else newton


def newton_obstacle(convex: OutputProblem) -> str:
    """Why Newton's method cannot be used; empty if it can."""
    problem, block, most = convex.problem, convex.rows.block, 4 * AUTO_LINEAR
    if problem.tau is not None:
        return "fits the penalized form only (alpha)"
    if not problem.penalty.compiled:
        return f"needs a compiled penalty, got {problem.penalty!r}"
    if block is None:
        return "needs rows in memory"
    if convex.n_linear > most:
        return f"fits at most {most} linear terms, X has {convex.n_linear}"
    if not convex.stored:
        return f"stores the activations, which exceeds memory={convex.memory:g} bytes"
    # The curvature of a loss without `curvature` is infinite.
    C = problem.loss.curvature(block.objective.targets[:1], np.zeros((1, problem.m)), None)
    return "" if np.isfinite(C).all() else "needs a loss with a method `curvature`"


class OutputRefit:
    """The paper's fully corrective step: refit V on all vectors, a convex problem."""

    corrective = True

    def __init__(
        self, objective: Objective, tol: float, max_iter: int, solver: str, memory: float
    ) -> None:
        self.objective, self.problem = objective, objective.problem
        self.tol, self.max_iter, self.solver, self.memory = tol, max_iter, solver, memory
        self.spent = 0
        # The activations of the last refit.
        self.H, self.A = np.empty((0, objective.rows.n_features)), np.empty((0, 0))

    def block(self, k: int) -> int:
        return 1  # which costs no more than finding it

    def flops(self, state: State) -> float:
        return 0.0

    def first(self, model: Model) -> Model:
        return self.refit(model, self.tol)

    def polish(self, state: State) -> Model:
        return self.refit(state.model, self.tol)

    def advance(self, state: State, chosen: Selection) -> Model:
        model = state.model.append(chosen.H, np.zeros((len(chosen.H), self.problem.m)))
        # The next round goes on from the same V, so an accurate one is only needed in the end.
        model = self.refit(model, self.refit_tol(state))
        return merge_unless_worse(self.objective, model)

    def refit_tol(self, state: State) -> float:
        """The tolerance of the refit after this state; it is looser far from the optimum."""
        problem = self.problem
        if problem.tau is not None:
            excess = state.gap_found / max(self.objective.size(state.objective), 1e-300)
        else:
            excess = state.violation / problem.alpha - 1 if problem.alpha else 1.0
        return float(np.clip(0.1 * excess, 0.1 * self.tol, max(self.tol, LOOSEST_REFIT_TOL)))

    def refit(self, model: Model, tol: float, max_iter: int | None = None) -> Model:
        """The model with V and the lower-order terms refitted, without rows that became zero."""
        if not len(model.H) and not self.objective.explicit:
            return model
        most, convex = self.max_iter if max_iter is None else max_iter, self.convex(model.H)
        # The price of an iteration, in iterations of FISTA.
        cost = 10 if choose_solver(convex, self.solver) is newton else 1
        fit = solve(convex, model, self.solver, tol, -(-most // cost))
        self.spent += cost * fit.n_iter
        return Model(model.H, fit.V, fit.intercept, fit.linear).nonzero()

    def convex(self, H: Floats) -> OutputProblem:
        """The refit on H, with stored activations where they fit the budget.

        Beside them are stored the features of the linear terms, unless they are sparse and many.
        """
        rows, block, k = self.objective.rows, self.objective.rows.block, len(H)
        n, d = rows.n_samples, rows.n_features if self.objective.explicit else -1
        wide = block is not None and block.design.matrix.sparse and d > 4 * AUTO_LINEAR
        if block is None or wide or 8.0 * n * (k + 1 + d) > self.memory:
            self.H, self.A = self.H[:0], self.A[:, :0]
            return OutputProblem(self.objective, k, H)
        Z, design = self.activations(H, block.design), block.design
        if self.objective.explicit:
            Z = stack_features(Z, take_rows(design.matrix, np.arange(n)))
        stored = rows_of_features(Z, design.n_threads, block.targets, block.loss, block.m, block.w)
        return OutputProblem(self.objective, k, stored=stored, memory=self.memory)

    def activations(self, H: Floats, design: Design) -> Floats:
        """The activations on H; those of the last refit are not computed again.

        A column is always computed on its own, so that a run that restarts from a state gets the
        same bits as the run that added the column.
        """
        known = {h.tobytes(): column for h, column in zip(self.H, self.A.T, strict=False)}
        A = np.empty((design.n_samples, len(H)))
        for r, h in enumerate(H):
            column = known.get(h.tobytes())
            A[:, r] = design.activations(h[None])[:, 0] if column is None else column
        self.H, self.A = H, A
        return A


class StepRefit(OutputRefit):
    """The plain conditional gradient step: it only chooses a length. Lower-order terms stay."""

    corrective = False

    def polish(self, state: State) -> Model:
        return state.model

    def advance(self, state: State, chosen: Selection) -> Model:
        model = plain_step(self.objective, state.model, chosen.H[0], chosen.Q[0])
        self.spent += 10  # about the passes that it took
        return merge_unless_worse(self.objective, model.nonzero())


def merge_unless_worse(objective: Objective, model: Model) -> Model:
    """The model with nearly parallel basis vectors merged, unless the objective rises."""
    fewer = merge_parallel(model.H, model.V)
    if fewer is None:
        return model
    new = model._replace(H=fewer[0], V=fewer[1])
    return new if objective.value(new) <= objective.value(model) else model


def plain_step(objective: Objective, model: Model, h: Floats, q: Floats) -> Model:
    """The model after a step toward the basis vector h (d,), with gradient q (m,) in its row of V.

    Constrained: (1 - x) V, and x tau p in the new row, with x in 0..1. Penalized: x_1 V and x_2 p,
    with x >= 0. The row p is the vertex of the unit ball that decreases the linearized loss most.
    The one or two numbers minimize the objective. Lower-order terms stay.
    """
    from scipy.optimize import minimize  # slow to import, and rarely needed

    problem, rows = objective.problem, objective.rows
    p = problem.penalty.polar(-q)
    old, new = model.append(h[None], 0 * p[None]), np.zeros((len(model.V) + 1, len(p)))
    new[-1] = p
    if problem.tau is None:  # V becomes a V + b p, (a, b) = base + x @ turn
        # In units in which the new activations have size one.
        unit = np.sqrt(rows.n_samples / max(float(rows.squared_norms(h[None])[0]), 1e-300))
        base, turn, start, bound = np.zeros(2), np.diag([1.0, unit]), [1.0, 0.0], None
        slopes = problem.alpha * np.array([problem.omega(model.V), 1.0])
    else:
        base, turn, start, bound = np.eye(2)[0], np.array([[-1.0, problem.tau]]), [0.0], 1
        slopes = np.zeros(2)

    def at(x: Floats) -> Model:
        a, b = base + x @ turn
        return old._replace(V=a * old.V + b * new)

    def value_grad(x: Floats) -> tuple[float, Floats]:
        value, G, _, _ = rows.value_layers(at(x))
        value += float(slopes @ (base + x @ turn))
        products = np.array([np.vdot(G, old.V), np.vdot(G, new)])
        return value, turn @ (slopes + products)

    bounds = [(0, bound)] * len(start)
    return at(minimize(value_grad, start, jac=True, bounds=bounds, method="L-BFGS-B").x)
