"""The refit of the output layer alone: a convex problem, with a certificate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fastpoly.kernels.checks import as_count, as_float_array, as_positive, as_weights
from fastpoly.kernels.features import RowBlocks, StoredFeatures
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.losses import complete_loss
from fastpoly.kernels.matrix import Matrix
from fastpoly.kernels.objective import Objective as RowObjective
from fastpoly.objective import Objective, small_objective
from fastpoly.problem import Problem, check_choice, resolve_loss
from fastpoly.refit.fista import Solution, fista
from fastpoly.refit.newton import newton
from fastpoly.refit.output_problem import OutputProblem, SummedProblem
from fastpoly.rows.block import Targets
from fastpoly.state import Model

Floats = NDArray[np.float64]
Solver = Callable[..., Solution]

# Number of linear terms up to which "auto" takes Newton's method, which stores them as activations.
# Measured with n = 20000 and m = 4: fista is 7 times faster with 200 well-conditioned terms, and
# 2.5 times slower with 36 correlated ones.
AUTO_LINEAR = 64

SOLVERS = ("auto", "fista", "newton")


class Refit(NamedTuple):
    """A refitted output layer with its certificate, recomputed at the returned point.

    Attributes
    ----------
    V : ndarray, (k, m)
    intercept : ndarray, (m,)
        Zero where the model has no explicit lower-order terms.
    linear : ndarray, (d, m) or None
    objective : float
        Loss plus penalty (the loss alone in the constrained form), ridge included.
    loss : float
    gap : float
        Upper bound on objective - minimum. Rows that no penalty bounds (the intercept, linear
        weights with alpha_linear = 0, all rows with alpha = 0) enter it as if their optimum were
        no farther away than 1 + their norm, in units of their activations: with such rows, and
        nearly collinear features, the error can be larger.
    n_iter : int
    converged : bool
    """

    V: Floats
    intercept: Floats
    linear: Floats | None
    objective: float
    loss: float
    gap: float
    n_iter: int
    converged: bool


def check_linear(linear: LinearTerms, n_samples: int) -> None:
    """Raise unless these are linear terms with the same number of rows."""
    if not isinstance(linear, LinearTerms):
        raise TypeError(f"linear must be LinearTerms(as_matrix(X)) or None, got {type(linear)}")
    if linear.X.n != n_samples:
        raise ValueError(f"linear has {linear.X.n} rows, the activations {n_samples}")


def refit_output(
    A: ArrayLike | RowBlocks,
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
    linear: LinearTerms | None = None,
    alpha_linear: float = 1.0,
    n_threads: int | None = 1,
) -> Refit:
    """Fit the output layer V on fixed activations: a convex problem.

    minimize  sum_i w_i l(y_i, V'a_i) + alpha Omega(V)    or  s.t. Omega(V) <= tau

    Parameters
    ----------
    A : array-like, (n, k), or RowBlocks
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
    linear : LinearTerms, optional
        Also fit an intercept and linear weights, the latter with a ridge penalty
        alpha_linear / 2 |W|^2.
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
    tol = as_positive(tol, "tol")
    check_choice(solver, "solver", SOLVERS)
    features = A if isinstance(A, RowBlocks) else StoredFeatures(A, n_threads)
    if linear is not None:
        check_linear(linear, features.n)
    loss = complete_loss(resolve_loss(loss, y))
    targets, m = Targets.of(loss, y, n_outputs)
    if len(targets.values) != features.n:
        raise ValueError(f"y has {len(targets.values)} samples, A has {features.n}")
    if not features.n:
        raise ValueError("there are no samples: A and y are empty")
    w = as_weights(sample_weight, "sample_weight", features.n, some=True)
    problem = Problem.of(loss, penalty, m, alpha=alpha, tau=tau, alpha_linear=alpha_linear)
    Y = targets.expanded()
    nothing = float(loss.value(Y, np.zeros((len(Y), m)), w))
    given = Given(problem, Y, w, small_objective(nothing))
    V = np.zeros((features.k, problem.m)) if start is None else start
    V = as_float_array(V, "start", (features.k, problem.m))
    max_iter = as_count(max_iter, "max_iter")
    return solve(
        given, features, V, linear=linear, solver=solver, tol=tol, max_iter=max_iter, at_least=0
    )


class Given(NamedTuple):
    """A problem with targets (n, 1 or m), weights, and the objective of a perfect fit."""

    problem: Problem
    Y: Floats
    w: Floats | None
    small: float


def output_problem(
    given: Given,
    features: RowBlocks,
    linear: LinearTerms | None = None,
    memory: float = 1e9,
) -> OutputProblem:
    """The refit on these activations, in the form of the solvers."""
    problem, Y, w, small = given
    objective = RowObjective(features, problem.loss, Y, problem.m, w, linear)
    return OutputProblem(problem, objective, features.k, small, memory)


def joined_problem(
    given: Given, features: RowBlocks, linear: LinearTerms, memory: float = 1e9
) -> OutputProblem:
    """The same problem in the same parameters, with [1, X] stored next to the activations."""
    A = np.hstack([features.activations(), np.ones((features.n, 1)), dense_array(linear.X)])
    joined = StoredFeatures(A, features.n_threads)
    problem, Y, w, small = given
    objective = RowObjective(joined, problem.loss, Y, problem.m, w)
    return OutputProblem(problem, objective, features.k, small, memory)


def solve(
    given: Given,
    features: RowBlocks,
    V: Floats,
    intercept: Floats | None = None,
    W: Floats | None = None,
    *,
    linear: LinearTerms | None = None,
    solver: str = "auto",
    tol: float,
    max_iter: int,
    at_least: int = 1,
    memory: float = 1e9,
) -> Refit:
    """Refit from (V, intercept, W), with at least the given number of iterations."""
    method = choose_solver(given, features, linear, solver, memory)
    make = joined_problem if method is newton and linear is not None else output_problem
    convex = make(given, features, linear, memory)
    return _solve(convex, method, V, intercept, W, tol, max_iter, at_least)


def solve_sums(
    objective: Objective, model: Model, *, solver: str, tol: float, max_iter: int
) -> Refit:
    """Refit from a model, with sums over rows that are not in memory."""
    if solver == "newton":
        raise ValueError('solver="newton" needs rows in memory; use solver="fista"')
    convex = SummedProblem(objective, model.H)
    return _solve(convex, fista, model.V, model.intercept, model.linear, tol, max_iter, 1)


def _solve(
    convex: OutputProblem,
    method: Solver,
    V: Floats,
    intercept: Floats | None,
    W: Floats | None,
    tol: float,
    max_iter: int,
    at_least: int,
) -> Refit:
    problem, k, m = convex.problem, convex.n_penalized, convex.problem.m
    P = np.zeros((len(convex.ridge), m))
    explicit = len(P) > k
    P[:k] = V if problem.tau is None or not k else problem.penalty.project(V, problem.tau)
    if explicit and W is not None:
        P[k], P[k + 1 :] = intercept, W
    solution = method(convex, P, tol=tol, max_iter=max_iter, at_least=at_least)
    P = solution.P
    return Refit(
        P[:k].copy(),
        P[k].copy() if explicit else np.zeros(m),
        P[k + 1 :].copy() if explicit else None,
        solution.objective,
        solution.value - convex.ridge_value(P),
        float(solution.gap),
        solution.n_iter,
        bool(solution.converged),
    )


def choose_solver(
    given: Given,
    features: RowBlocks,
    linear: LinearTerms | None,
    solver: str,
    memory: float = 1e9,
) -> Solver:
    """The named solver, or for "auto" the faster one: Newton's method where it is cheap."""
    if solver == "fista":
        return fista
    obstacle = newton_obstacle(given, features, linear, memory)
    if solver == "newton":
        if obstacle:
            raise ValueError(f'solver="newton" {obstacle}; use solver="fista"')
        return newton
    many = linear is not None and linear.X.d > AUTO_LINEAR
    return fista if obstacle or many else newton


def newton_obstacle(
    given: Given, features: RowBlocks, linear: LinearTerms | None, memory: float
) -> str:
    """Why Newton's method cannot be used; empty if it can."""
    problem = given.problem
    if problem.tau is not None:
        return "fits the penalized form only (alpha)"
    if not problem.penalty.compiled:
        return f"needs a compiled penalty, got {problem.penalty!r}"
    if not has_curvature(given):
        return "needs a loss with a method `curvature`"
    if linear is None:
        return ""
    if linear.X.d > 4 * AUTO_LINEAR:
        return f"fits at most {4 * AUTO_LINEAR} linear terms, X has {linear.X.d}"
    if 8.0 * features.n * (features.k + 1 + linear.X.d) > memory:
        return f"stores {linear.X.d} linear terms, which exceeds memory={memory:g} bytes"
    return ""


def has_curvature(given: Given) -> bool:
    """Whether the second derivatives of the loss are known."""
    Y, m = given.Y[:1], given.problem.m
    # That of a loss without `curvature` is infinite.
    C = given.problem.loss.curvature(Y, np.zeros((len(Y), m)), None)
    return bool(np.isfinite(C).all())


def dense_array(X: Matrix) -> NDArray:
    """The rows of X, (n, d)."""
    if not X.sparse:
        return X.rows(slice(None))
    return csr_array(X.arrays, shape=(X.n, X.d)).toarray()
