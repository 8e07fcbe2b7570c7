"""Refitting: the output layer alone (convex), or output layer and basis vectors together."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from fastpoly.kernels.checks import as_array, as_count, as_float_array, as_positive, as_weights
from fastpoly.kernels.features import RowBlocks, StoredFeatures
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.matrix import Matrix
from fastpoly.kernels.objective import Objective
from fastpoly.kernels.penalties import Penalty, get_penalty
from fastpoly.kernels.targets import encode_targets
from fastpoly.refit.fista import Solution, fista
from fastpoly.refit.newton import newton
from fastpoly.refit.output_problem import OutputProblem, squared_column_norms

Floats = NDArray[np.float64]
Solver = Callable[..., Solution]

# For Newton's method the linear terms are stored as activations: so many at most. "auto" takes it
# for fewer (n = 20000, m = 4: with 200 well-conditioned terms fista is 7 times faster, with 36
# correlated ones 2.5 times slower), and within so many bytes.
MAX_LINEAR = 256
AUTO_LINEAR = 64
AUTO_BYTES = 2**28

# A fit is perfect when its objective is this share of the loss of a model without parameters.
PERFECT = 1e-6
# Squares of gradients must stay within the range of numbers: losses of that size at the beginning.
SMALLEST, LARGEST = 1e-100, 1e100

# Codes of more classes than that, and than 10 a sample, are taken for names that were not numbered.
MANY_CLASSES = 1000

SOLVERS = ("auto", "fista", "newton")

# name: (for class codes, for signs)
SHORT_NAMES = {
    "logistic": ("multiclass_logistic", "binary_logistic"),
    "smoothed_hinge": ("smoothed_multiclass_hinge", "smoothed_binary_hinge"),
    "squared_hinge": ("multiclass_squared_hinge", "binary_squared_hinge"),
}


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


def check_strength(alpha: float | None, tau: float | None) -> tuple[float | None, float | None]:
    """alpha (>= 0, penalised form) or tau (> 0, constrained form); alpha = 1 for neither."""
    if alpha is not None and tau is not None:
        raise ValueError("give alpha (penalised form) or tau (constrained form), not both")
    if tau is not None:
        return None, as_positive(tau, "tau")
    return as_positive(1.0 if alpha is None else alpha, "alpha", or_zero=True), None


def check_choice(value: object, name: str, known: tuple) -> None:
    """Raise unless value is one of the known ones."""
    if not isinstance(value, (str, type(None))) or value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(map(repr, known))}")


def check_linear(linear: LinearTerms, n_samples: int) -> None:
    """Raise unless these are linear terms of as many rows."""
    if not isinstance(linear, LinearTerms):
        raise TypeError(f"linear must be LinearTerms(as_matrix(X)) or None, got {type(linear)}")
    if linear.X.n != n_samples:
        raise ValueError(f"linear has {linear.X.n} rows, the activations {n_samples}")


def resolve_loss(loss: Any, y: ArrayLike) -> Any:
    """The loss for a name, where the short names depend on the targets.

    "logistic", "smoothed_hinge" and "squared_hinge" are the multi-class losses for class codes and
    the binary ones for a matrix of signs, or for one column of -1 and +1. (A column without a -1
    looks like class codes: name the loss itself then, as "binary_logistic".)
    """
    if not isinstance(loss, str) or loss not in SHORT_NAMES:
        if isinstance(loss, str) and loss not in LOSSES:
            known = ", ".join([*SHORT_NAMES, *LOSSES])
            raise ValueError(f"unknown loss {loss!r}; known: {known}")
        return get_loss(loss)
    y = as_array(y, "y")
    signs = y.ndim == 2 and y.shape[1] != 1
    if not signs and y.dtype.kind in "if":
        signs = bool((y == -1).any() and (np.abs(y) == 1).all())
    return get_loss(SHORT_NAMES[loss][signs])


def encode(loss: Any, y: ArrayLike, n_outputs: int | None, n_samples: int) -> tuple[Floats, int]:
    """Targets in the form the loss takes, checked, and the number of outputs."""
    encoder = getattr(loss, "encode", None)
    Y = encoder(y, n_outputs) if encoder else encode_targets(loss.target, y, n_outputs)
    if len(Y) != n_samples:
        raise ValueError(f"y has {len(Y)} samples, X has {n_samples}")
    if not n_samples:
        raise ValueError("there are no samples: X and y are empty")
    if n_outputs is None:
        n_outputs = int(Y.max()) + 1 if loss.target == "label" else Y.shape[1]
        if loss.target == "label" and n_outputs > max(MANY_CLASSES, 10 * n_samples):
            raise ValueError(
                f"y holds the class code {n_outputs - 1}, but there are only {n_samples} samples; "
                "number the classes 0 .. m - 1, e.g. with np.unique(y, return_inverse=True), or "
                "pass n_outputs"
            )
    return Y, n_outputs


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

    minimise  sum_i w_i l(y_i, V'a_i) + alpha Omega(V)    or  s.t. Omega(V) <= tau

    Parameters
    ----------
    A : array-like, (n, k), or RowBlocks
        Activations, or any dense matrix.
    y : array-like
        Targets, as the loss takes them: class codes (n,), signs or numbers (n, m).
    loss, penalty : str or object
    alpha, tau : float
        Strength of the penalty, or radius of the ball; alpha = 1 when neither is given. Losses are
        sums over the rows, not means, and alpha is on that scale.
    tol : float
        Stop when the certified gap is at most tol times the objective (or times a millionth of the
        loss without a model, where that is more: a perfect fit).
    solver : {"auto", "fista", "newton"}
        "newton" needs a loss with curvature, and few linear terms; "auto" takes it where it can.
    max_iter : int
        Iterations at most (a Newton iteration is a costly one).
    sample_weight : array-like, (n,), optional
    n_outputs : int, optional
        Number of classes, where y does not show it.
    start : array-like, (k, m), optional
        Output layer to start from.
    linear : LinearTerms, optional
        Fit an intercept and linear weights beside the network, the latter with a ridge penalty
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
    alpha, tau = check_strength(alpha, tau)
    tol = as_positive(tol, "tol")
    features = A if isinstance(A, RowBlocks) else StoredFeatures(A, n_threads)
    if linear is not None:
        check_linear(linear, features.n)
    loss, penalty = resolve_loss(loss, y), get_penalty(penalty)
    Y, n_outputs = encode(loss, y, n_outputs, features.n)
    w = as_weights(sample_weight, "sample_weight", features.n, some=True)
    fitter = OutputRefit(loss, penalty, Y, n_outputs, w, alpha, tau, alpha_linear, solver)
    V = np.zeros((features.k, n_outputs)) if start is None else start
    V = as_float_array(V, "start", (features.k, n_outputs))
    return fitter(
        features, V, linear=linear, tol=tol, max_iter=as_count(max_iter, "max_iter"), at_least=0
    )


class OutputRefit:
    """The output-layer refit with everything but the activations fixed."""

    def __init__(
        self,
        loss: Any,
        penalty: Any,
        Y: Floats,
        n_outputs: int,
        w: Floats | None,
        alpha: float | None,
        tau: float | None,
        alpha_linear: float = 1.0,
        solver: str = "auto",
        memory: float = 1e9,
    ) -> None:
        self.loss, self.penalty, self.Y, self.m, self.w = loss, penalty, Y, n_outputs, w
        check_choice(solver, "solver", SOLVERS)
        self.alpha, self.tau, self.solver = alpha, tau, solver
        self.alpha_linear = as_positive(alpha_linear, "alpha_linear", or_zero=True)
        self.memory = memory
        nothing = float(loss.value(Y, np.zeros((len(Y), n_outputs)), w))
        if nothing and not SMALLEST <= nothing <= LARGEST:
            raise ValueError(
                f"the loss of a model without parameters is {nothing:.1e}, beyond {SMALLEST:g}.."
                f"{LARGEST:g}; rescale y or sample_weight"
            )
        self.small = PERFECT * nothing

    def problem(self, features: RowBlocks, linear: LinearTerms | None = None) -> OutputProblem:
        """The refit on these activations as a problem for the solvers."""
        objective = Objective(features, self.loss, self.Y, self.m, self.w, linear)
        return self._problem(objective, features.k)

    def joined_problem(self, features: RowBlocks, linear: LinearTerms) -> OutputProblem:
        """The same problem in the same parameters, with [1, X] stored beside the activations."""
        A = np.hstack([features.activations(), np.ones((features.n, 1)), dense_array(linear.X)])
        joined = StoredFeatures(A, features.n_threads)
        return self._problem(Objective(joined, self.loss, self.Y, self.m, self.w), features.k)

    def _problem(self, objective: Objective, k: int) -> OutputProblem:
        ridge = np.zeros(objective.n_rows)
        ridge[k + 1 :] = self.alpha_linear
        metric = squared_column_norms(objective) + ridge
        return OutputProblem(
            objective, self.penalty, self.alpha, self.tau, ridge, k, metric, self.small, self.memory
        )

    def __call__(
        self,
        features: RowBlocks,
        V: Floats,
        intercept: Floats | None = None,
        W: Floats | None = None,
        *,
        linear: LinearTerms | None = None,
        tol: float,
        max_iter: int,
        at_least: int = 1,
    ) -> Refit:
        """Refit from (V, intercept, W), with at least that many iterations."""
        solve = self.choose(features, linear)
        if solve is newton and linear is not None:
            problem = self.joined_problem(features, linear)
        else:
            problem = self.problem(features, linear)
        k, m = features.k, self.m
        P = np.zeros((problem.objective.n_rows, m))
        P[:k] = V if self.tau is None or not k else self.penalty.project(V, self.tau)
        if linear is not None and W is not None:
            P[k], P[k + 1 :] = intercept, W
        solution = solve(problem, P, tol=tol, max_iter=max_iter, at_least=at_least)
        P = solution.P
        return Refit(
            P[:k].copy(),
            np.zeros(m) if linear is None else P[k].copy(),
            None if linear is None else P[k + 1 :].copy(),
            solution.objective,
            solution.value - problem.ridge_value(P),
            float(solution.gap),
            solution.n_iter,
            bool(solution.converged),
        )

    def choose(self, features: RowBlocks, linear: LinearTerms | None) -> Solver:
        """The solver named, or for "auto" the faster one, which is Newton's where it is cheap."""
        if self.solver == "fista":
            return fista
        obstacle = self.obstacle(linear)
        if self.solver == "newton":
            if obstacle:
                raise ValueError(f'solver="newton" {obstacle}; use solver="fista"')
            return newton
        # In a ball the Newton model is itself minimised by fista: 3 times the time of fista on the
        # data with 3 outputs and 20 activations, as much with 10 and 30, 7 times with 26 and 60.
        if obstacle or self.tau is not None or not isinstance(self.penalty, Penalty):
            return fista
        if linear is not None:
            stored = 8.0 * features.n * (features.k + 1 + linear.X.d)
            if linear.X.d > AUTO_LINEAR or stored > min(AUTO_BYTES, self.memory):
                return fista
        return newton

    def obstacle(self, linear: LinearTerms | None) -> str:
        """Why Newton's method cannot be used, or nothing."""
        if not self.has_curvature():
            return "needs a loss with a method `curvature` or a finite smoothness"
        if linear is None:
            return ""
        if linear.X.d > MAX_LINEAR or linear.X.augment:
            return f"fits at most {MAX_LINEAR} linear terms, X has {linear.X.d}"
        return ""

    def has_curvature(self) -> bool:
        """Whether the second derivatives of the loss are known, or at least bounded."""
        if not hasattr(self.loss, "curvature"):
            return bool(np.isfinite(self.loss.smoothness(self.m)))
        # A compiled loss that gives no more than a row has infinite ones.
        C = self.loss.curvature(self.Y[:1], np.zeros((len(self.Y[:1]), self.m)), None)
        return bool(np.isfinite(C).all())


def dense_array(X: Matrix) -> NDArray:
    """The rows of X, (n, d)."""
    if not X.sparse:
        return X.array
    return csr_array(X.arrays, shape=(X.n, X.d)).toarray()
