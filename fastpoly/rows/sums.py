"""Sums over the rows of a design for one problem: all that the algorithm knows of the data.

Each verb takes small arguments (a model, a direction) and returns a small result that is a sum over
rows, so that the rows may be anywhere. Here they are in memory.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.explicit import make_gamma
from fastpoly.kernels.features import RowBlocks
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.linear import LinearTerms
from fastpoly.problem import Problem
from fastpoly.rows.design import Design
from fastpoly.state import Model

Floats = NDArray[np.float64]

# Curvature below this is none: that of a perfect fit, whose loss falls without end. Data and
# targets that `check_scale` and `Problem` let through stay far above it.
NO_CURVATURE = 1e-250


class Gradient(NamedTuple):
    """The loss at a model, its gradients (as `Model`), and what selection and certificate need."""

    value: float
    V: Floats
    intercept: Floats | None
    linear: Floats | None
    gamma: Gamma
    conjugate: Callable[[float], float]


class Curvature(NamedTuple):
    """Sums of second derivatives (Gauss-Newton) for the preconditioner.

    Attributes
    ----------
    directions : ndarray, (d, d), or None
        Columns T in which the curvature of every basis vector is nearly diagonal; None: unit
        vectors.
    basis : ndarray, (k, d)
        Curvature of h_r along each direction.
    joint : ndarray, (k + 1 + d, k + 1 + d) or (k, k)
        Gram matrix of activations, constant and features, weighted by the mean curvature of the
        outputs; without linear terms, or where d is large, of the activations.
    intercept : ndarray, (m,), or None
    linear : ndarray, (d, m), or None
        Diagonals, where `joint` has no features.
    """

    directions: Floats | None
    basis: Floats
    joint: Floats
    intercept: Floats | None
    linear: Floats | None


class RowSums:
    """The sums of one problem over the rows of a `Design`.

    Parameters
    ----------
    design : Design
    problem : Problem
    """

    def __init__(self, design: Design, problem: Problem) -> None:
        self.design, self.problem = design, problem
        self.explicit = design.fit_lower == "explicit"
        self.objective = JointObjective(
            design.matrix, problem.loss, problem.Y, problem.m, problem.w,
            activation=design.activation, linear=self.explicit, n_threads=design.n_threads,
        )  # fmt: skip

    def empty_model(self) -> Model:
        """The model without basis vectors, all zero."""
        d, m = self.design.n_features, self.problem.m
        linear = np.zeros((d, m)) if self.explicit else None
        return Model(np.zeros((0, d)), np.zeros((0, m)), np.zeros(m), linear)

    def value_grad_packed(self, x: Floats, k: int, g: Floats) -> float:
        """The loss at the packed model [H | V | intercept | linear]; its gradient goes to g."""
        return self.objective.value_grad_packed(x, k, g)

    def value(self, model: Model) -> float:
        """The loss."""
        problem = self.problem
        return float(problem.loss.value(problem.Y, self.outputs(model), problem.w))

    def outputs(self, model: Model) -> Floats:
        """The outputs of all rows, (n, m)."""
        return self.objective.outputs(*self._parts(model))

    def gradient(self, model: Model) -> Gradient:
        """The loss and its gradient, with the operators Gamma_c of the row gradients."""
        problem, loss = self.problem, self.problem.loss
        D = np.empty((self.design.n_samples, problem.m))
        value, _, *parts = self.objective.value_grad(*self._parts(model), basis=False, D=D)
        if not np.isfinite(value) or not np.isfinite(D).all():
            raise ValueError("the loss overflows; scale X, y or sample_weight down")

        def conjugate(c: float) -> float:
            if not hasattr(loss, "conjugate"):
                return np.nan
            return float(loss.conjugate(problem.Y, D, c, problem.w))

        return Gradient(value, *parts, self.design.gamma(D), conjugate)

    def ray(
        self, model: Model, H: Floats, V: Floats
    ) -> tuple[Callable[[float], tuple[float, float]], float]:
        """The loss and its slope at the model with t V appended on H, as a function of t.

        Also a bound of its second derivative, or the one of a loss of smoothness 1 where the
        smoothness is not known.
        """
        problem = self.problem
        O, added = self.outputs(model), self.design.outputs(H, V)

        def at(t: float) -> tuple[float, float]:
            value, D = problem.loss.value_grad(problem.Y, O + t * added, problem.w)
            return float(value), float(np.vdot(D, added))

        bound = float(problem.loss.smoothness(problem.m))
        w = np.ones(len(added)) if problem.w is None else problem.w
        squares = float(w @ np.einsum("ic,ic->i", added, added))
        return at, squares * (bound if np.isfinite(bound) else 1.0)

    def noise_level(self, model: Model) -> float:
        """The violation that the row gradients of a model would have if their signs were random.

        With d_i the gradient of the loss of row i in its outputs, sum_i e_i |d_i| x_i x_i' for
        random signs e has a spectral norm of about the root of the largest eigenvalue of

            sum_i w_i |d_i|^2 |x_i|^2 x_i x_i'

        (the matrix Khintchine inequality, without its logarithm); half of that for "anova".
        """
        problem, matrix = self.problem, self.design.matrix
        _, D = problem.loss.value_grad(problem.Y, self.outputs(model), problem.w)
        squares = np.einsum("ic,ic->i", D, D)
        if problem.w is not None:  # D holds the weights, and their squares would be
            squares = np.divide(squares, problem.w, out=np.zeros_like(squares), where=problem.w > 0)
        squares *= self.design.row_squares()
        gamma = make_gamma(matrix, squares[:, None], "squared", self.design.n_threads)
        largest = np.abs(dominant_eigenvectors(gamma, random_state=0).values).max()
        return float(np.sqrt(largest)) * (1.0 if self.design.activation == "squared" else 0.5)

    def squared_norms(self, H: Floats) -> Floats:
        """sum_i w_i a_i^2 for each activation, the constant and each feature, (k + 1 + d,)."""
        return squared_norms(self.design.features(H), self.design.linear, self.problem.w)

    def curvature(self, model: Model, penalty: Floats) -> Curvature:
        """The sums of the preconditioner, in an eigenbasis where there are few features.

        That costs d^2 per row, and d^3. Up to about 500 features it is worth it; with 1000 a
        diagonal is as good. `penalty` (k,) is the mean curvature of the penalty in each vector,
        which the choice of the basis takes into account.
        """
        X = self.design.matrix
        if X.sparse or 4 * X.d**2 > BLOCK_DOUBLES:
            basis, output, intercept, linear = self.objective.curvature(*self._parts(model))
            return Curvature(None, basis, output, intercept, linear)
        return self._eigen_curvature(model, penalty)

    def _eigen_curvature(self, model: Model, penalty: Floats) -> Curvature:
        """As `curvature`, for dense rows.

        With u_ir the curvature of the loss along z_ir = h_r'x_i, vector r sees the curvature
        B_r = X' diag(u_r) X. All share the eigenbasis T of their normalized mean, penalty
        included, in units of its diagonal: columns may differ by many orders of magnitude. Each
        has its own diagonal of T' B_r T. For ANOVA, z_ir^2 / 2 stands in for the kernel.
        """
        k, d = len(model.H), self.design.n_features
        O = self.outputs(model)
        C = _loss_curvature(self.problem, O)
        activity = 4.0 if self.design.activation == "squared" else 1.0
        V2 = activity * (model.V**2).T

        def along() -> Iterator[tuple[Floats, Floats]]:
            for rows, X in self._blocks():
                yield X, (X @ model.H.T) ** 2 * (C[rows] @ V2)

        blocks = along
        if self.design.n_samples * (d + k) <= BLOCK_DOUBLES:
            once = list(along())
            blocks = once.__iter__
        directions, basis = np.eye(d), np.zeros((k, d))
        if k:
            totals = sum(U.sum(axis=0) for _, U in blocks())
            shares = 1 / np.where(totals > NO_CURVATURE, totals, 1.0)
            mean = np.diag(np.full(d, shares @ penalty))
            for X, U in blocks():
                mean += (X * (U @ shares)[:, None]).T @ X
            scale = mean.diagonal()
            scale = 1 / np.sqrt(np.where(scale > NO_CURVATURE, scale, 1.0))
            directions = scale[:, None] * np.linalg.eigh(mean * scale * scale[:, None])[1]
            for X, U in blocks():
                basis += U.T @ (X @ directions) ** 2
        width = k + (1 + d if self.explicit else 0)
        joint = np.zeros((width, width))
        mean_curvature = C.mean(axis=1)
        for rows, X in self._blocks():
            A = self._stacked(model.H, X)
            joint += (A * mean_curvature[rows, None]).T @ A
        return Curvature(directions, basis, joint, None, None)

    def _stacked(self, H: Floats, X: Floats) -> Floats:
        """[activations, 1, X] of some rows, or the activations without linear terms."""
        S = (X @ H.T) ** 2
        if self.design.activation == "anova":
            S = 0.5 * (S - (X * X) @ (H * H).T)
        return np.hstack([S, np.ones((len(X), 1)), X]) if self.explicit else S

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Dense rows, the constant included, a block at a time."""
        X = self.design.matrix
        step = max(1, BLOCK_DOUBLES // max(1, X.d))
        for first in range(0, X.n, step):
            rows = slice(first, first + step)
            block = np.asarray(X.array[rows], dtype=np.float64)
            yield rows, np.hstack([np.ones((len(block), 1)), block]) if X.augment else block

    def _parts(self, model: Model) -> tuple[Any, ...]:
        return tuple(model) if self.explicit else (model.H, model.V)


def squared_norms(features: RowBlocks, linear: LinearTerms | None, w: Floats | None) -> Floats:
    """sum_i w_i a_i^2 for each activation and, with linear terms, the constant and each feature."""
    norms = np.zeros(features.k)
    for S, rows in features.blocks():
        norms += np.einsum("ir,ir->r", S, S if w is None else S * w[rows, None])
    if linear is None:
        return norms
    w = np.ones(features.n) if w is None else w
    return np.concatenate([norms, [w.sum()], linear.squared_column_norms(w)])


def _loss_curvature(problem: Problem, O: Floats) -> Floats:
    """Weighted second derivatives of the loss, (n, m), or their bound where it has none."""
    loss, w = problem.loss, problem.w
    if hasattr(loss, "curvature"):
        C = np.asarray(loss.curvature(problem.Y, O, w))
    else:
        C = np.full(O.shape, float(loss.smoothness(problem.m)))
        C = C if w is None else C * w[:, None]
    return C if np.isfinite(C).all() else np.ones_like(O)
